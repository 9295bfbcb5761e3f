"""What all channels share: what a message says, the page that it leads to, and how sending fails."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from coordinator.lib import times
from coordinator.lib.invisible import is_invisible_character
from coordinator.lib.storable import parse_database_id
from coordinator.models import BudgetMark, Notification, PermissionRequest
from coordinator.models.budgets import AtLimit
from coordinator.models.permissions import RequestStatus as Status
from coordinator.policy.limits.budgets import USED_UP, convert_budget_row
from coordinator.policy.requests import approvals
from coordinator.policy.requests.approvals import request_context
from coordinator.policy.requests.gateway_requests import gateway_request_gist
from coordinator.secrets.masking import mask_secrets, shorten_masks
from coordinator.sessions import titles

LONGEST_TITLE, LONGEST_TEXT, MOST_MASKED = 180, 10_000, 20_000  # characters
BUDGET = "budget:"  # begins what a message about a budget is about
BUDGETS_PAGE = "/ui/budgets/"
AT_LIMIT = {
    AtLimit.ASK.value: "A person is asked about each further call.",
    AtLimit.HOLD.value: "Further calls are denied, and no run starts.",
}


class NotificationNotSent(Exception):
    """The message did not get through; says why in a few words, never with the receiver's own text."""


class AddressEnded(NotificationNotSent):
    """The address is no more, and never will be again; says why in a sentence for its owner."""


@dataclass(frozen=True, slots=True)
class MessageText:
    """A message for people to read: one line of title, what stands below it, and the page that it ends with."""

    title: str
    text: str
    link: str

    @property
    def body_with_link(self) -> str:
        """Return what stands below the title, with the link."""
        return "\n".join([*([self.text, ""] if self.text else []), self.link, ""])


def build_message_text(
    message: Notification, request: PermissionRequest | None, now: datetime
) -> MessageText:
    """Return what `message` says about `request` (None: a test). The tool's input stays here."""
    if message.event == Notification.NotifiedEvent.BUDGET:
        return build_budget_message_text(message)
    if request is None:
        return MessageText(
            "Signalbox: a test", "This is a test. Messages from Signalbox reach you.", approval_page_url(None)
        )
    if message.event == Notification.NotifiedEvent.SETTLED:
        title = (
            f"Signalbox: {describe_request_end(request, now)} {describe_request_subject(request, 'asked')}"
        )
        return MessageText(clean_text_line(title), "", approval_page_url(request))
    late = (
        f", waiting for {request_waiting_time(request, now)}"
        if message.event == Notification.NotifiedEvent.ESCALATED
        else ""
    )
    about = [clean_text_paragraph(request.justification)]
    if session := request_session_title(request):
        about.append(f"Session: {clean_text_line(session)}")
    about += ["", "Open the request and decide (sign in first):"]
    title = f"Signalbox: {describe_request_subject(request, 'asks')}{late}"
    return MessageText(clean_text_line(title), "\n".join(about), approval_page_url(request))


def find_budget_mark(message: Notification) -> BudgetMark | None:
    """Return of which mark of a budget a message tells; None where it is gone."""
    number = parse_database_id(message.request_id.removeprefix(BUDGET))
    return BudgetMark.objects.select_related("budget").filter(pk=number).first() if number else None


def build_budget_message_text(message: Notification) -> MessageText:
    mark = find_budget_mark(message)
    if mark is None:  # it was changed meanwhile, and is told of anew
        return MessageText("Signalbox: a budget changed", "", budgets_page_url())
    budget = convert_budget_row(mark.budget)
    of = f" in {mark.about}" if budget.is_by_session else ""
    state = "used up" if mark.level >= USED_UP else f"{mark.level} % used"
    then = AT_LIMIT.get(budget.at_limit, "") if mark.level >= USED_UP else ""
    text = " ".join(
        sentence for sentence in (then, "Raise it, or allow more until the end of the day:") if sentence
    )
    return MessageText(
        clean_text_line(f"Signalbox: the budget of {budget.title} is {state}{of}"), text, budgets_page_url()
    )


def budgets_page_url(*, to_agent: bool = False) -> str:
    """Return where budgets are seen and raised, by the address that an agent knows or by people's own."""
    return f"{settings.AGENT_URL if to_agent else settings.PUBLIC_URL}{BUDGETS_PAGE}"


def describe_request_subject(request: PermissionRequest, verb: str) -> str:
    """Return who asks for what; of a call through the MCP gateway the agent and the tool."""
    if (call := gateway_request_gist(request)) is None:
        return f"{request.plugin_id} {verb} for {request.permission_type}"
    context = request_context(request)
    return f"{(context and context.agent_id) or 'An agent'} {verb} to call {call}"


def describe_request_end(request: PermissionRequest, now: datetime) -> str:
    """Return how the request ended, by whom, as a sentence."""
    status = approvals.current_request_state(request, now).status
    if status in approvals.DECIDED:
        return f"{Status(status).label} by {request.approved_by or 'somebody'}."
    if status == Status.EXPIRED:
        return "Expired without a decision."
    return "Withdrawn by its requester."


def clean_text_line(text: str, longest: int = LONGEST_TITLE) -> str:
    """Return foreign text on one line, without secrets and with nothing in it that an eye misses."""
    return truncate_with_ellipsis(" ".join(mask_and_reveal_text(text).split()), longest)


def clean_text_paragraph(text: str) -> str:
    """Return foreign text likewise, with its lines."""
    return truncate_with_ellipsis("\n".join(mask_and_reveal_text(text).splitlines()), LONGEST_TEXT)


def truncate_with_ellipsis(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def mask_and_reveal_text(text: str) -> str:
    """Mask a text and show what it hides. What is too much to look through is left out first, from the last space on:
    half a secret is not known as one, and masks are shorter than what they stand for.
    """
    if len(text) > MOST_MASKED:
        head = text[:MOST_MASKED]
        text = head[: max(head.rfind(" "), MOST_MASKED // 2)]
    masked = shorten_masks(str(mask_secrets(text)))
    return "".join("\N{REPLACEMENT CHARACTER}" if is_hidden_character(char) else char for char in masked)


def is_hidden_character(char: str) -> bool:
    return not (char.isascii() and (char.isprintable() or char.isspace())) and is_invisible_character(char)


def request_waiting_time(request: PermissionRequest, now: datetime) -> str:
    return (
        times.format_rough_duration(now - request.created_at)
        if isinstance(request.created_at, datetime)
        else "long"
    )


def approval_page_path(request: PermissionRequest | None) -> str:
    """Return the path of the page on which a person decides."""
    return f"/ui/approvals/{request.request_id}/" if request else "/ui/approvals/"


def approval_page_url(request: PermissionRequest | None, *, to_agent: bool = False) -> str:
    """Return where a person decides: a page that asks for a sign-in first. By the agents' address or by people's."""
    return f"{settings.AGENT_URL if to_agent else settings.PUBLIC_URL}{approval_page_path(request)}"


def request_session(request: PermissionRequest) -> str | None:
    """Return the id of the session in which a request was made, where that is known."""
    context = request_context(request)
    return context.session_id if context else None


def request_session_title(request: PermissionRequest) -> str | None:
    """Return what that session is about, where that is known."""
    session_id = request_session(request)
    return (titles.load_session_title(session_id) or None) if session_id else None
