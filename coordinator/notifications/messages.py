"""Code shared by all channels: the text of a message, the page that it leads to, and failures of sending."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from django.conf import settings

from coordinator.lib import instants, times
from coordinator.lib.invisible import is_invisible_character
from coordinator.lib.storable import parse_database_id_or_none
from coordinator.models import (
    BudgetMark,
    DrivenSession,
    McpAccessToken,
    Notification,
    PermissionRequest,
    SessionGuard,
    SubscriptionLimit,
)
from coordinator.models.budgets import AtLimit
from coordinator.models.permissions import RequestStatus as Status
from coordinator.policy.limits.budgets import USED_UP, convert_budget_row
from coordinator.policy.requests import approvals, question_requests
from coordinator.policy.requests.approvals import request_context
from coordinator.policy.requests.gateway_requests import gateway_request_call_label
from coordinator.policy.requests.questions import AgentQuestions, describe_how_agent_asks
from coordinator.secrets.masking import mask_secrets_in_value, shorten_mask_digests
from coordinator.sessions import titles

LONGEST_TITLE, LONGEST_TEXT, MOST_MASKED = 180, 10_000, 20_000  # characters
BUDGET = "budget:"  # begins what a message about a budget is about
SESSION = "session:"  # begins what a message about a session is about
SIGN_IN = "sign-in:"  # begins what a message about a needed sign-in is about
BUDGETS_PAGE = "/ui/budgets/"
LIMIT = "limit:"  # begins what a message about a subscription's limit is about
USAGE_PAGE = "/ui/costs/"
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
    """A message for people to read: one line of title, the text below it, and the page that it ends with."""

    title: str
    text: str
    link: str

    @property
    def body_with_link(self) -> str:
        """Return the text below the title, with the link."""
        return "\n".join([*([self.text, ""] if self.text else []), self.link, ""])


def build_message_text(
    message: Notification, request: PermissionRequest | None, now: datetime
) -> MessageText:
    """Return what `message` says about `request` (None: a test). The tool's input stays here."""
    builders = {
        Notification.NotifiedEvent.BUDGET.value: build_budget_message_text,
        Notification.NotifiedEvent.LIMIT.value: build_subscription_limit_message_text,
        Notification.NotifiedEvent.UNGUARDED.value: build_unguarded_calls_message_text,
        Notification.NotifiedEvent.SIGN_IN.value: build_sign_in_message_text,
    }
    if message.event in builders:
        return builders[message.event](message)
    if request is None:
        return MessageText(
            "Signalbox: a test", "This is a test. Messages from Signalbox reach you.", approval_page_url(None)
        )
    if message.event == Notification.NotifiedEvent.SETTLED:
        title = (
            f"Signalbox: {describe_request_end(request, now)} {describe_who_requests_what(request, 'asked')}"
        )
        return MessageText(clean_foreign_text_to_one_line(title), "", approval_page_url(request))
    late = (
        f", waiting for {request_waiting_time_text(request, now)}"
        if message.event == Notification.NotifiedEvent.ESCALATED
        else ""
    )
    about = [clean_foreign_text_keeping_lines(describe_question(request) or request.justification)]
    if session := request_session_title(request):
        about.append(f"Session: {clean_foreign_text_to_one_line(session)}")
    about += ["", "Open the request and decide (sign in first):"]
    title = f"Signalbox: {describe_who_requests_what(request, 'asks')}{late}"
    return MessageText(clean_foreign_text_to_one_line(title), "\n".join(about), approval_page_url(request))


def find_budget_mark_of_notification(message: Notification) -> BudgetMark | None:
    """Return the mark of a budget that a message is about; None where it is gone."""
    number = parse_database_id_or_none(message.request_id.removeprefix(BUDGET))
    return BudgetMark.objects.select_related("budget").filter(pk=number).first() if number else None


def build_budget_message_text(message: Notification) -> MessageText:
    mark = find_budget_mark_of_notification(message)
    if mark is None:  # it was changed meanwhile, and is notified of again
        return MessageText("Signalbox: a budget changed", "", budgets_page_url())
    budget = convert_budget_row(mark.budget)
    of = f" in {mark.about}" if budget.is_limit_per_session else ""
    state = "used up" if mark.level >= USED_UP else f"{mark.level} % used"
    then = AT_LIMIT.get(budget.at_limit, "") if mark.level >= USED_UP else ""
    text = " ".join(
        sentence for sentence in (then, "Raise it, or allow more until the end of the day:") if sentence
    )
    return MessageText(
        clean_foreign_text_to_one_line(f"Signalbox: the budget of {budget.title} is {state}{of}"),
        text,
        budgets_page_url(),
    )


def find_subscription_limit_of_notification(message: Notification) -> SubscriptionLimit | None:
    """Return the subscription's limit that a message is about; None where it is gone."""
    number = parse_database_id_or_none(message.request_id.removeprefix(LIMIT))
    return SubscriptionLimit.objects.filter(pk=number).first() if number else None


def build_subscription_limit_message_text(message: Notification) -> MessageText:
    limit = find_subscription_limit_of_notification(message)
    page = f"{settings.PUBLIC_URL}{USAGE_PAGE}"
    if limit is None:
        return MessageText("Signalbox: a subscription's limit changed", "", page)
    resets_at = instants.instant_from_microseconds(limit.resets_at_us).astimezone(settings.LOCAL_ZONE)
    name = f"{limit.program} {limit.name}".strip()
    title = f"Signalbox: {name} has used {int(limit.used_percent)} % of its limit for {limit.window_label}"
    text = f"It resets on {resets_at:%A, %H:%M} ({settings.LOCAL_ZONE})."
    host = f" Reported by {clean_foreign_text_to_one_line(limit.host)}." if limit.host else ""
    return MessageText(clean_foreign_text_to_one_line(title), f"{text}{host}", page)


def find_session_guard_of_notification(message: Notification) -> SessionGuard | None:
    """Return the count of unguarded calls that a message is about; None where its session is gone."""
    return SessionGuard.objects.filter(pk=message.request_id.removeprefix(SESSION)).first()


def build_unguarded_calls_message_text(message: Notification) -> MessageText:
    """Return what a message says about calls that ran without a guard."""
    guard = find_session_guard_of_notification(message)
    if guard is None:
        return MessageText("Signalbox: a session was deleted", "", f"{settings.PUBLIC_URL}/ui/sessions/")
    calls = f"{guard.unguarded} call{'' if guard.unguarded == 1 else 's'}"
    named = titles.load_session_title(guard.pk) or "an untitled session"
    if DrivenSession.objects.filter(pk=guard.pk).exists():
        return MessageText(
            clean_foreign_text_to_one_line(f"Signalbox: {calls} ran without a question, in {named}"),
            "The agent approves every call by itself in this mode. Choose another one for the session:",
            f"{settings.PUBLIC_URL}{session_page_path(guard.pk)}",
        )
    return MessageText(
        clean_foreign_text_to_one_line(f"Signalbox: {calls} never came to the hook, in {named}"),
        "They ran, and nobody here could have stopped them. Check the agent's hooks:",
        f"{settings.PUBLIC_URL}{session_page_path(guard.pk)}",
    )


def find_pending_sign_in_of_notification(message: Notification) -> McpAccessToken | None:
    """Return the sign-in that a message asks for; None where it is not needed any more."""
    number = parse_database_id_or_none(message.request_id.removeprefix(SIGN_IN))
    token = McpAccessToken.objects.filter(pk=number).first() if number else None
    return token if token is not None and token.needs_sign_in else None


def build_sign_in_message_text(message: Notification) -> MessageText:
    """Return what a message says to who must sign in at an MCP server."""
    token = find_pending_sign_in_of_notification(message)
    if token is None:
        return MessageText("Signalbox: you are signed in again", "", f"{settings.PUBLIC_URL}/ui/mcp/")
    return MessageText(
        clean_foreign_text_to_one_line(f"Signalbox: sign in at the MCP server {token.server_id}"),
        "Calls of agents fail there until you do. "
        + clean_foreign_text_keeping_lines(f"{token.problem or ''} Sign in on the server's page:"),
        f"{settings.PUBLIC_URL}/ui/mcp/servers/{quote(token.server_id, safe='')}/",
    )


def session_page_path(session_id: str) -> str:
    """Return the path of a session's page."""
    return f"/ui/sessions/{quote(session_id, safe='')}/"


def budgets_page_url(*, to_agent: bool = False) -> str:
    """Return where budgets are seen and raised, by the address that an agent knows or by people's own."""
    return f"{settings.AGENT_URL if to_agent else settings.PUBLIC_URL}{BUDGETS_PAGE}"


def describe_who_requests_what(request: PermissionRequest, verb: str) -> str:
    """Return who asks for what; of a call through the MCP gateway the agent and the tool."""
    if (parsed_question := question_requests.parse_request_question_or_none(request)) is not None:
        question = approvals.permission_request_gist(request)
        return f"{request.plugin_id} {describe_how_agent_asks(parsed_question)}: {question}"
    if (call := gateway_request_call_label(request)) is None:
        return f"{request.plugin_id} {verb} for {request.permission_type}"
    context = request_context(request)
    return f"{(context and context.agent_id) or 'An agent'} {verb} to call {call}"


def describe_question(request: PermissionRequest) -> str:
    """Return what a request asks in words, with the choices; nothing where it is no question or a plan."""
    parsed_question = question_requests.parse_request_question_or_none(request)
    if not isinstance(parsed_question, AgentQuestions):
        return ""
    lines = [parsed_question.title] if parsed_question.title else []
    for question in parsed_question.questions:
        lines += [question.text, *(f"- {choice.label}" for choice in question.choices)]
    return "\n".join(lines)


def describe_request_end(request: PermissionRequest, now: datetime) -> str:
    """Return how the request ended, by whom, as a sentence."""
    status = approvals.current_request_state(request, now).status
    if status in approvals.DECIDED:
        return f"{Status(status).label} by {request.approved_by or 'somebody'}."
    if status == Status.EXPIRED:
        return "Expired without a decision."
    return "Withdrawn by its requester."


def clean_foreign_text_to_one_line(text: str, longest: int = LONGEST_TITLE) -> str:
    """Return foreign text on one line, without secrets and with nothing in it that an eye misses."""
    return truncate_with_ellipsis(" ".join(mask_secrets_and_replace_hidden(text).split()), longest)


def clean_foreign_text_keeping_lines(text: str) -> str:
    """Return foreign text likewise, with its lines."""
    return truncate_with_ellipsis("\n".join(mask_secrets_and_replace_hidden(text).splitlines()), LONGEST_TEXT)


def truncate_with_ellipsis(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def mask_secrets_and_replace_hidden(text: str) -> str:
    """Mask a text and show what it hides. What is too much to look through is left out first, from the last space on:
    half a secret is not known as one, and masks are shorter than what they replace.
    """
    if len(text) > MOST_MASKED:
        head = text[:MOST_MASKED]
        text = head[: max(head.rfind(" "), MOST_MASKED // 2)]
    masked = shorten_mask_digests(str(mask_secrets_in_value(text)))
    return "".join("\N{REPLACEMENT CHARACTER}" if is_hidden_character(char) else char for char in masked)


def is_hidden_character(char: str) -> bool:
    return not (char.isascii() and (char.isprintable() or char.isspace())) and is_invisible_character(char)


def request_waiting_time_text(request: PermissionRequest, now: datetime) -> str:
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


def session_id_of_request(request: PermissionRequest) -> str | None:
    """Return the id of the session in which a request was made, where that is known."""
    context = request_context(request)
    return context.session_id if context else None


def request_session_title(request: PermissionRequest) -> str | None:
    """Return what that session is about, where that is known."""
    session_id = session_id_of_request(request)
    return (titles.load_session_title(session_id) or None) if session_id else None
