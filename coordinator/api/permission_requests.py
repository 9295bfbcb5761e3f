"""Permission requests for machines: create, read, withdraw. Only people decide, on their pages.

Waiting for the verdict is a long poll of the edge (coordinator/edge/polling/waits.py): `GET …/{request_id}/wait`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from typing import Annotated, Any

from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Query, Schema, Status
from pydantic import AwareDatetime, ConfigDict, StringConstraints

from coordinator.actions import approvals
from coordinator.actions.sessions import reported_sessions
from coordinator.actions.sessions.tool_calls import RUNS_EDITED_INPUT
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.api.shared_types import error_responses
from coordinator.errors import BadRequest, Forbidden
from coordinator.identity import ownership
from coordinator.identity.keys import KeyIdentity
from coordinator.identity.scopes import OVERSEERS, READERS, REPORTERS, WRITE_ALL
from coordinator.models import Event, PermissionRequest, Session
from coordinator.models.permissions import RequestStatus
from coordinator.policy.requests import api_request_rules, approval_coverage, verdicts
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.approval_coverage import Requester
from coordinator.policy.requests.approvals import PermissionSubject
from coordinator.policy.rules.tool_rules import DENY
from coordinator.sessions.reports import SessionLocation

router = Router(tags=["permission requests"])

PAGE, LARGEST_PAGE = 100, 500
PAGE_CHARACTERS = 4 * 1024 * 1024  # of what the requests of one page hold, after which a page ends early

# PostgreSQL has no form for NUL in text.
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=r"^[^\x00]*$")]
Name = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500, pattern=r"^[^\x00]*$")]


class NewPermissionRequestIn(Schema):
    """What an agent asks for. A field that is not listed is refused: nothing here sets a status."""

    model_config = ConfigDict(extra="forbid")

    plugin_id: Words
    permission_type: Words
    justification: Words = Field(description="Why the permission is needed. The person who decides sees it.")
    target_resource: str | None = Field(None, pattern=r"^[^\x00]*$", description="What it is needed for.")
    metadata: Any = None
    session_id: Name | None = None
    conversation_id: Name | None = Field(
        None,
        description="Instead of `session_id`: your program's own id of its conversation, as in its telemetry. "
        "The request is shown in the session of that id, which is made where there is none.",
    )
    agent_id: Name | None = None
    event_id: int | None = Field(None, description="The session's event that led to this request.")
    tool_name: Name | None = None
    tool_input: Any = None
    folder: Name | None = Field(None, description="The folder in which the call would run.")
    host: Name | None = Field(None, description="The machine on which it would run.")
    runs_edited_input: bool = Field(
        False,
        description="Whether you run `edited_input` where a person edits `tool_input`, which must be an object. "
        "The card offers it then.",
    )
    deadline: AwareDatetime | None = Field(None, description="After this instant an answer is of no use.")
    idempotency_key: Name | None = None


class PermissionAnswer(Schema):
    """A request in its present state. `allowed` is the verdict: whether the asker may go on with `tool_input`.

    `edited`: a person approved another input instead. `allowed` is false then, and only `edited_input` may run.
    `brake`: a person holds such calls; this is the message for the asker. Nothing may run then. An approval counts
    again once the brake is released; `/wait` waits for that.
    `scope` is what an approval covers: `call`, `session`, `folder` (on its host) or `everywhere`. It always covers
    only the agent that asked, or, where the request names no agent, the key.
    """

    request_id: str
    status: str
    allowed: bool
    brake: str | None
    edited: bool
    edited_input: Any
    approved_by: str | None
    approved_at: str | None
    expires_at: str | None
    reason: str | None
    validity: str | None
    scope: str | None
    revoked_at: str | None
    created_at: str | None
    deadline: str | None
    plugin_id: str
    permission_type: str
    target_resource: str | None
    justification: str
    metadata: Any
    session_id: str | None
    agent_id: str | None
    folder: str | None
    host: str | None
    tool_name: str | None
    tool_input: Any


class ApprovalQuestion(Schema):
    """A question whether something without a tool is approved already: for whom, and where."""

    plugin_id: str
    permission_type: str
    target_resource: str | None = None
    agent_id: str | None = None
    asked_by: str | None = Field(
        None,
        description="Whose requests, as `key:NAME`; default: your own. Only for keys that read everything.",
    )
    session_id: str | None = None
    folder: str | None = None
    host: str | None = None


class ApprovalCheck(Schema):
    """Whether an approval in force covers the question, and which. None does while a `brake` holds such calls."""

    approved: bool
    brake: str | None
    request_id: str | None
    expires_at: str | None


@router.post(
    "/permission-requests",
    auth=build_scoped_key_auth(*REPORTERS),
    response={201: PermissionAnswer, 200: PermissionAnswer},
    summary="Ask a person for a permission",
)
def create_permission_request(request: HttpRequest, body: NewPermissionRequestIn) -> Status[dict[str, Any]]:
    """Answers 201 with a new request, or 200 with an existing one: the same request, pending, or an approval in force.

    A call that a rule denies is denied at once, with the rule's reason. Refused for a session that the key may not
    write to, and for an event of another session.
    """
    now, caller = timezone.now(), caller_identity(request)
    require_request_session_write_access(body, caller)
    new = build_new_permission_request(body, caller)
    if body.conversation_id and not body.session_id:
        new = replace(new, session_id=ensure_conversation_session_id(body.conversation_id, new, caller, now))
    ruling = api_request_rules.judge_requested_call_by_rules(
        new.subject, new.agent_id, new.folder, now, session_id=new.session_id
    )
    if ruling.decision == DENY:
        denied = approvals.get_or_create_denied_request(new, ruling, actor=caller.caller_actor, now=now)
        answer = verdicts.build_requester_answer_with_brake(
            denied.request, now, new.build_requester(caller.caller_actor)
        )
        return Status(201 if denied.created else 200, answer)
    result = approvals.request_permission(new, actor=caller.caller_actor, now=now)
    return Status(
        201 if result.created else 200,
        verdicts.build_requester_answer_with_brake(
            result.request, now, new.build_requester(caller.caller_actor)
        ),
    )


class ManyRequests(Schema):
    """Requests, newest first; `next_cursor` is present while there are older ones."""

    requests: list[PermissionAnswer]
    next_cursor: str | None = None


class RequestsPage(Schema):
    """Which requests to list."""

    status: Name | None = Field(
        None, description="Only these: pending, approved, denied, expired or withdrawn"
    )
    session_id: Name | None = Field(None, description="Only what this session asked for")
    limit: Annotated[int, Field(ge=1, le=LARGEST_PAGE)] = PAGE
    cursor: Name | None = Field(None, description="`next_cursor` of the previous page")


@router.get(
    "/permission-requests",
    auth=build_scoped_key_auth(*OVERSEERS),
    response={200: ManyRequests, **error_responses(400)},
    exclude_unset=True,
    summary="List permission requests",
)
def list_permission_requests(request: HttpRequest, page: Query[RequestsPage]) -> dict[str, Any]:
    """Newest first, everybody's. A pending request whose deadline has passed is shown as expired.

    A page whose requests are large ends before `limit`.
    """
    now = timezone.now()
    requests = PermissionRequest.objects.order_by("-created_at", "-id")
    if page.status == RequestStatus.PENDING:
        requests = requests.awaiting_decision(now)
    elif page.status == RequestStatus.EXPIRED:
        requests = requests.past_deadline(now)
    elif page.status is not None:
        requests = requests.filter(status=page.status)
    if page.session_id is not None:
        requests = requests.filter(context__session_id=page.session_id)
    if page.cursor is not None:
        requests = requests.filter(older_requests_filter(page.cursor))
    sizes = list(requests.list_ids_and_character_counts()[: page.limit + 1])
    fitting = count_requests_fitting_page([size for _, size in sizes[: page.limit]])
    rows = list(requests.with_context().filter(pk__in=[pk for pk, _ in sizes[:fitting]]))
    body_fields = {"requests": verdicts.list_requester_answers_with_brakes(rows, now)}
    return (
        {**body_fields, "next_cursor": rows[-1].request_id} if rows and len(sizes) > fitting else body_fields
    )


def count_requests_fitting_page(sizes: Sequence[int]) -> int:
    """Return how many requests of these sizes a page holds: one at least."""
    return max(1, sum(total <= PAGE_CHARACTERS for total in accumulate(sizes))) if sizes else 0


def older_requests_filter(request_id: str) -> Q:
    """Return a filter for requests older than this one. Raises BadRequest where it is gone."""
    position = PermissionRequest.objects.filter(request_id=request_id).values_list("created_at", "pk").first()
    if position is None:
        raise BadRequest("The cursor names no permission request that exists")
    created_at, pk = position
    return Q(created_at__lt=created_at) | Q(created_at=created_at, pk__lt=pk)


@router.get(
    "/permission-requests/check",
    auth=build_scoped_key_auth(*READERS),
    response=ApprovalCheck,
    summary="Check whether this is already approved",
)
def check_approval(request: HttpRequest, question: Query[ApprovalQuestion]) -> dict[str, Any]:
    """Says whether an approval in force covers this, without asking anybody."""
    subject = PermissionSubject(question.plugin_id, question.permission_type, question.target_resource)
    requester = resolve_requester_of_question(question, caller_identity(request))
    approval = approval_coverage.find_covering_approval(subject, requester, timezone.now())
    brake = verdicts.find_message_of_requester_brake(requester, question.plugin_id) if approval else None
    return {
        "approved": approval is not None and brake is None,
        "brake": brake,
        "request_id": approval.request_id if approval else None,
        "expires_at": rules.canonical_instant_or_text(approval.expires_at) if approval else None,
    }


@router.get(
    "/permission-requests/{request_id}",
    auth=build_scoped_key_auth(*READERS),
    response=PermissionAnswer,
    summary="Get a permission request",
)
def get_permission_request(request: HttpRequest, request_id: str) -> dict[str, Any]:
    """Returns the request in its present state."""
    now = timezone.now()
    return verdicts.build_requester_answer_with_brake(
        rules.require_visible_request(request_id, caller_identity(request), now), now
    )


@router.get(
    "/permission-requests/{request_id}/wait",
    auth=build_scoped_key_auth(*READERS),
    response=PermissionAnswer,
    summary="Wait for a person's decision",
)
def wait_for_decision(
    request: HttpRequest, request_id: str, timeout: Annotated[float, Query(ge=0, le=600)] = 30
) -> dict[str, Any]:
    """Answers as soon as the request is decided, expired or withdrawn, after `timeout` seconds in any case.

    While a brake holds such calls, the wait does not end with an approval: it ends once the brake is released.
    """
    # The edge holds this call (edge.polling.endpoints), any number of them on one request. Here it answers at once.
    return get_permission_request(request, request_id)


@router.delete(
    "/permission-requests/{request_id}",
    auth=build_scoped_key_auth(*REPORTERS),
    response=PermissionAnswer,
    summary="Withdraw a request",
)
def withdraw_permission_request(
    request: HttpRequest, request_id: str, reason: Annotated[str | None, Query(max_length=2000)] = None
) -> dict[str, Any]:
    """Withdraws a pending request; 409, with who decided what, if somebody was faster."""
    now, caller = timezone.now(), caller_identity(request)
    may_all = bool(caller.scopes & WRITE_ALL)
    try:
        row = approvals.withdraw_request(
            request_id, actor=caller.caller_actor, may_all=may_all, reason=reason, now=now
        )
    except Forbidden:
        rules.require_visible_request(request_id, caller, now)  # to whom it is hidden, it does not exist
        raise
    return verdicts.build_requester_answer_with_brake(row, now)


def caller_identity(request: HttpRequest) -> KeyIdentity:
    """Return whose key the call came with."""
    caller = request.auth  # type: ignore[attr-defined] # ninja sets it
    assert isinstance(caller, KeyIdentity)
    return caller


def resolve_agent_of_api_key(caller: KeyIdentity, agent_id: str | None) -> str | None:
    """Return the agent a call speaks for: an agent's key speaks for that agent alone."""
    if agent_id is not None and not caller.can_speak_for_agent(agent_id):
        raise Forbidden(f"This key is bound to {caller.bound_agents_label} and may not act for other agents.")
    if agent_id is None and caller.agents is not None:
        raise Forbidden(
            f"This key is bound to {caller.bound_agents_label}: say in agent_id for which of them it acts."
        )
    return agent_id or caller.agent_id


def resolve_requester_of_question(question: ApprovalQuestion, caller: KeyIdentity) -> Requester:
    """Return whose approvals a caller asks about. Raises Forbidden for those of others."""
    requested_by = question.asked_by or str(caller.caller_actor)
    if requested_by != str(caller.caller_actor) and not caller.scopes & OVERSEERS:
        raise Forbidden("Only a key of scope read or operator may ask about another key's approvals.")
    agent_id = resolve_agent_of_api_key(caller, question.agent_id)
    return Requester(agent_id, requested_by, question.session_id, question.folder, question.host)


def require_request_session_write_access(body: NewPermissionRequestIn, caller: KeyIdentity) -> None:
    """Raise Forbidden or NotFound where the request may not be shown in its session, at its event.

    The id of an unknown session is kept: nothing is shown in it.
    """
    if not body.session_id or not Session.objects.filter(pk=body.session_id).exists():
        return
    ownership.require_session_write_access(caller, body.session_id)
    if body.event_id is None:
        return
    if not Event.objects.filter(pk=body.event_id, session_id=body.session_id).exists():
        raise BadRequest(f"The session has no event {body.event_id}")


def build_new_permission_request(
    body: NewPermissionRequestIn, caller: KeyIdentity
) -> approvals.NewPermissionRequest:
    """Return the action's argument for a body."""
    subject = PermissionSubject(
        body.plugin_id, body.permission_type, body.target_resource or None, body.tool_name, body.tool_input
    )
    deadline: datetime | None = body.deadline
    folder, host = resolve_call_folder_and_host(body)
    return approvals.NewPermissionRequest(
        subject,
        body.justification,
        metadata=build_permission_request_metadata(body),
        session_id=body.session_id or None,
        agent_id=resolve_agent_of_api_key(caller, body.agent_id or None),
        event_id=body.event_id,
        deadline=deadline,
        idempotency_key=body.idempotency_key,
        slot=body.idempotency_key,
        folder=folder,
        host=host,
    )


def build_permission_request_metadata(body: NewPermissionRequestIn) -> Any:
    """Return the request's metadata, with whether its input can be edited. Nobody claims that by metadata alone."""
    metadata = body.metadata
    if isinstance(metadata, dict):
        metadata = {name: value for name, value in metadata.items() if name != RUNS_EDITED_INPUT}
    if not body.runs_edited_input or not isinstance(body.tool_input, dict):
        return metadata
    if metadata is not None and not isinstance(metadata, dict):
        raise BadRequest("With runs_edited_input, metadata must be an object")
    return {**(metadata or {}), RUNS_EDITED_INPUT: True}


def ensure_conversation_session_id(
    conversation_id: str, new: approvals.NewPermissionRequest, caller: KeyIdentity, now: datetime
) -> str:
    """Return the session of a program's own conversation, made where there is none that the key may write into."""
    location = SessionLocation(new.folder, new.host, caller.agent_name_for_report(new.agent_id), by=caller)
    return reported_sessions.reopen_or_create_session(conversation_id, location, now).session_id


def resolve_call_folder_and_host(body: NewPermissionRequestIn) -> tuple[str | None, str | None]:
    """Return the folder and host in which the call would run: as the body says, else those of its session."""
    if body.folder or body.host or not body.session_id:
        return body.folder or None, body.host or None
    session_facts = Session.objects.filter(pk=body.session_id).values_list("project_dir", "hostname").first()
    return session_facts or (None, None)
