"""What all channels share: what a message says, the page that it leads to, and how sending fails."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from coordinator.lib import times
from coordinator.lib.invisible import is_invisible
from coordinator.lib.storable import row_id
from coordinator.models import BudgetMark, Notification, PermissionRequest
from coordinator.models.budgets import AtLimit
from coordinator.models.permissions import RequestStatus as Status
from coordinator.policy import approvals
from coordinator.policy.approvals import context_of
from coordinator.policy.budgets import USED_UP, row_of
from coordinator.policy.gateway_requests import gateway_gist_of
from coordinator.secrets.masking import short, without_secrets
from coordinator.sessions import titles

LONGEST_TITLE, LONGEST_TEXT, MOST_MASKED = 180, 10_000, 20_000  # characters
BUDGET = "budget:"  # begins what a message about a budget is about
BUDGETS_PAGE = "/ui/budgets/"
AT_LIMIT = {
    AtLimit.ASK.value: "A person is asked about each further call.",
    AtLimit.HOLD.value: "Further calls are denied, and no run starts.",
}


class NotSent(Exception):
    """The message did not get through; says why in a few words, never with the receiver's own text."""


class Ended(NotSent):
    """The address is no more, and never will be again; says why in a sentence for its owner."""


@dataclass(frozen=True, slots=True)
class MessageText:
    """A message for people to read: one line of title, what stands below it, and the page that it ends with."""

    title: str
    text: str
    link: str

    @property
    def letter(self) -> str:
        """Return what stands below the title, with the link."""
        return "\n".join([*([self.text, ""] if self.text else []), self.link, ""])


def words(message: Notification, request: PermissionRequest | None, now: datetime) -> MessageText:
    """Return what `message` says about `request` (None: a test). The tool's input stays here."""
    if message.event == Notification.Event.BUDGET:
        return _of_budget(message)
    if request is None:
        return MessageText(
            "Signalbox: a test", "This is a test. Messages from Signalbox reach you.", link(None)
        )
    if message.event == Notification.Event.SETTLED:
        title = f"Signalbox: {ended(request, now)} {_asks(request, 'asked')}"
        return MessageText(line(title), "", link(request))
    late = f", waiting for {_waited(request, now)}" if message.event == Notification.Event.ESCALATED else ""
    about = [paragraph(request.justification)]
    if session := title_of(request):
        about.append(f"Session: {line(session)}")
    about += ["", "Open the request and decide (sign in first):"]
    title = f"Signalbox: {_asks(request, 'asks')}{late}"
    return MessageText(line(title), "\n".join(about), link(request))


def budget_mark_of(message: Notification) -> BudgetMark | None:
    """Return of which mark of a budget a message tells; None where it is gone."""
    number = row_id(message.request_id.removeprefix(BUDGET))
    return BudgetMark.objects.select_related("budget").filter(pk=number).first() if number else None


def _of_budget(message: Notification) -> MessageText:
    mark = budget_mark_of(message)
    if mark is None:  # it was changed meanwhile, and is told of anew
        return MessageText("Signalbox: a budget changed", "", budgets_link())
    budget = row_of(mark.budget)
    of = f" in {mark.about}" if budget.is_by_session else ""
    state = "used up" if mark.level >= USED_UP else f"{mark.level} % used"
    then = AT_LIMIT.get(budget.at_limit, "") if mark.level >= USED_UP else ""
    text = " ".join(one for one in (then, "Raise it, or allow more until the end of the day:") if one)
    return MessageText(line(f"Signalbox: the budget of {budget.title} is {state}{of}"), text, budgets_link())


def budgets_link(*, to_agent: bool = False) -> str:
    """Return where budgets are seen and raised, by the address that an agent knows or by people's own."""
    return f"{settings.AGENT_URL if to_agent else settings.PUBLIC_URL}{BUDGETS_PAGE}"


def _asks(request: PermissionRequest, verb: str) -> str:
    """Return who asks for what; of a call through the MCP gateway the agent and the tool."""
    if (call := gateway_gist_of(request)) is None:
        return f"{request.plugin_id} {verb} for {request.permission_type}"
    context = context_of(request)
    return f"{(context and context.agent_id) or 'An agent'} {verb} to call {call}"


def ended(request: PermissionRequest, now: datetime) -> str:
    """Return how the request ended, by whom, as a sentence."""
    status = approvals.standing(request, now).status
    if status in approvals.DECIDED:
        return f"{Status(status).label} by {request.approved_by or 'somebody'}."
    if status == Status.EXPIRED:
        return "Expired without a decision."
    return "Withdrawn by its requester."


def line(text: str, longest: int = LONGEST_TITLE) -> str:
    """Return foreign text on one line, without secrets and with nothing in it that an eye misses."""
    return _cut(" ".join(_plain(text).split()), longest)


def paragraph(text: str) -> str:
    """Return foreign text likewise, with its lines."""
    return _cut("\n".join(_plain(text).splitlines()), LONGEST_TEXT)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _plain(text: str) -> str:
    """Mask a text and show what it hides. What is too much to look through is left out first, from the last space on:
    half a secret is not known as one, and masks are shorter than what they stand for.
    """
    if len(text) > MOST_MASKED:
        head = text[:MOST_MASKED]
        text = head[: max(head.rfind(" "), MOST_MASKED // 2)]
    masked = short(str(without_secrets(text)))
    return "".join("\N{REPLACEMENT CHARACTER}" if _hides(char) else char for char in masked)


def _hides(char: str) -> bool:
    return not (char.isascii() and (char.isprintable() or char.isspace())) and is_invisible(char)


def _waited(request: PermissionRequest, now: datetime) -> str:
    return times.rough(now - request.created_at) if isinstance(request.created_at, datetime) else "long"


def path_to(request: PermissionRequest | None) -> str:
    """Return the path of the page on which a person decides."""
    return f"/ui/approvals/{request.request_id}/" if request else "/ui/approvals/"


def link(request: PermissionRequest | None, *, to_agent: bool = False) -> str:
    """Return where a person decides: a page that asks for a sign-in first. By the agents' address or by people's."""
    return f"{settings.AGENT_URL if to_agent else settings.PUBLIC_URL}{path_to(request)}"


def session_of(request: PermissionRequest) -> str | None:
    """Return the id of the session in which a request was made, where that is known."""
    context = context_of(request)
    return context.session_id if context else None


def title_of(request: PermissionRequest) -> str | None:
    """Return what that session is about, where that is known."""
    session_id = session_of(request)
    return (titles.of_one(session_id) or None) if session_id else None
