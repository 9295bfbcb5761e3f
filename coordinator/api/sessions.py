"""Sessions over HTTP. The edge takes events and streams sessions (api/edge_operations.py)."""

from __future__ import annotations

from typing import Annotated, Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Schema
from pydantic import BaseModel, Field

from coordinator.actions import runs
from coordinator.actions.sessions import sessions
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.api.shared_types import LAST_ID, Ok, Text, error_responses, get_request_key_identity
from coordinator.errors import BadRequest, NotFound
from coordinator.identity import ownership
from coordinator.identity.scopes import READERS, SESSION_KEEPERS
from coordinator.models import Event, Session
from coordinator.sessions import wire
from coordinator.sessions.results import load_session_result

router = Router(tags=["Sessions"])

PAGE, LARGEST_PAGE = 500, 1000
EVENTS_PAGE, LARGEST_EVENTS_PAGE = 100, 1000


class SessionOut(Schema):
    """A session's ten fields. Status: pending, running, idle, stopping, stopped, finished or error.

    `idle`: its last run has completed, and its process waits on its runner for the next.
    """

    session_id: str
    status: str
    created_at: str
    project_dir: str | None
    agent_name: str | None
    last_resumed_at: str | None
    parent_session_id: str | None
    executor_session_id: str | None
    executor_profile: str | None
    hostname: str | None


class OneSession(Schema):
    """One session."""

    session: SessionOut


class ChangedSession(Ok):
    """The session as it is now."""

    session: SessionOut


class ManySessions(Schema):
    """Sessions, newest first; `next_cursor` is present while there are older ones."""

    sessions: list[SessionOut]
    next_cursor: str | None = None


class SessionsPage(Schema):
    """Which sessions to list."""

    limit: Annotated[int, Field(ge=1, le=LARGEST_PAGE)] = PAGE
    cursor: Text | None = Field(None, description="`next_cursor` of the previous page")


@router.get(
    "/sessions",
    auth=build_scoped_key_auth(*READERS),
    response={200: ManySessions, **error_responses()},
    exclude_unset=True,
    operation_id="list_sessions",
    summary="List sessions, newest first",
)
def list_sessions(request: HttpRequest, page: Query[SessionsPage]) -> dict[str, Any]:
    """Without parameters the newest 500; older ones with `cursor`."""
    readable_sessions = (
        ownership.readable_sessions(get_request_key_identity(request))
        .exclude(pk=None)
        .order_by("-created_at", "-session_id")
    )
    if page.cursor is not None:
        readable_sessions = readable_sessions.filter(older_sessions_filter(page.cursor, readable_sessions))
    rows = list(readable_sessions[: page.limit + 1])
    page_body = {"sessions": [wire.session_as_json(row) for row in rows[: page.limit]]}
    return (
        {**page_body, "next_cursor": rows[page.limit - 1].session_id} if len(rows) > page.limit else page_body
    )


def older_sessions_filter(session_id: str, among: QuerySet[Session]) -> Q:
    at = among.filter(pk=session_id).values_list("created_at__text", flat=True).first()
    if at is None:
        raise BadRequest("The cursor names no session that exists")
    return Q(created_at__text__lt=at) | Q(created_at__text=at, session_id__lt=session_id)


@router.get(
    "/sessions/{session_id}",
    auth=build_scoped_key_auth(*READERS),
    response={200: OneSession, **error_responses(404)},
    operation_id="get_session",
    summary="Get a session",
)
def get_session(request: HttpRequest, session_id: Text) -> dict[str, Any]:
    """The session's ten fields."""
    ownership.require_session_read_access(get_request_key_identity(request), session_id)
    return {"session": wire.session_as_json(sessions.require_session(session_id))}


class SessionStatusOut(Schema):
    """A session's status, or `not_existent`."""

    status: str


@router.get(
    "/sessions/{session_id}/status",
    auth=build_scoped_key_auth(*READERS),
    response={200: SessionStatusOut, **error_responses()},
    operation_id="get_session_status",
    summary="Get a session's status",
)
def get_session_status(request: HttpRequest, session_id: Text) -> dict[str, str]:
    """An unknown session is not an error: its status is `not_existent`."""
    status = (
        ownership.readable_sessions(get_request_key_identity(request))
        .filter(pk=session_id)
        .values_list("status", flat=True)
        .first()
    )
    return {"status": status or "not_existent"}


class ResultOut(Schema):
    """The agent's last message. A procedural agent has `result_data`, and `result` is the same as JSON text."""

    result: str
    result_text: str | None
    result_data: Any = None


@router.get(
    "/sessions/{session_id}/result",
    auth=build_scoped_key_auth(*READERS),
    response={200: ResultOut, **error_responses(400, 404)},
    operation_id="get_session_result",
    summary="Get a finished session's result",
)
def get_session_result(request: HttpRequest, session_id: Text) -> dict[str, Any]:
    """400 until the session is finished or idle; 404 where there is no message."""
    ownership.require_session_read_access(get_request_key_identity(request), session_id)
    if sessions.require_session(session_id).status not in {Session.Status.FINISHED, Session.Status.IDLE}:
        raise BadRequest("Session not finished")
    result = load_session_result(session_id)
    if result is None:
        raise NotFound("No result found")
    return {
        "result": result.session_result_text_or_json,
        "result_text": result.text,
        "result_data": result.data,
    }


class AffinityOut(Schema):
    """Where a session's executor keeps its state."""

    session_id: str
    hostname: str | None
    project_dir: str | None
    executor_profile: str | None
    executor_session_id: str | None


class SessionAffinity(Schema):
    """Where a resume of the session has to run."""

    affinity: AffinityOut


@router.get(
    "/sessions/{session_id}/affinity",
    auth=build_scoped_key_auth(*READERS),
    response={200: SessionAffinity, **error_responses(404)},
    operation_id="get_session_affinity",
    summary="Get where a session runs",
)
def get_session_affinity(request: HttpRequest, session_id: Text) -> dict[str, Any]:
    """Resumes of the session go to this host and executor profile."""
    ownership.require_session_read_access(get_request_key_identity(request), session_id)
    session = sessions.require_session(session_id)
    return {"affinity": {name: getattr(session, name) for name in AffinityOut.model_fields}}


class EventOut(Schema):
    """An event of a session, as its executor sent it."""

    id: int
    session_id: str
    event_type: str
    timestamp: str
    tool_name: str | None
    tool_input: Any
    tool_output: Any
    error: str | None
    exit_code: int | str | None = Field(
        description="A text where another program stored something other than an integer."
    )
    reason: str | None
    role: str | None
    content: Any
    result_text: str | None = Field(description="Of a `result` event")
    result_data: Any = Field(description="Of a `result` event")


class SessionEvents(Schema):
    """Events in the order in which they happened; those of one instant in the order of receipt.

    `has_more` says whether there are more in the direction of reading: later ones, or with `before` earlier ones.
    """

    events: list[EventOut]
    has_more: bool
    next_after: int | None = Field(
        description="Pass it as `after` for the next page; null at the end, and with `before`"
    )
    next_before: int | None = Field(
        description="Pass it as `before` to go back further; null at the beginning"
    )


class EventsPage(Schema):
    """Which events to list."""

    limit: Annotated[int, Field(ge=1, le=LARGEST_EVENTS_PAGE)] = EVENTS_PAGE
    after: Annotated[int, Field(ge=0, le=LAST_ID)] | None = Field(
        None, description="Id of an event of this session: list those that follow it"
    )
    before: Annotated[int, Field(ge=0, le=LAST_ID)] | None = Field(
        None, description="Id of an event of this session: list the last ones before it"
    )


@router.get(
    "/sessions/{session_id}/events",
    auth=build_scoped_key_auth(*READERS),
    response={200: SessionEvents, **error_responses(400, 404)},
    operation_id="list_session_events",
    summary="List a session's events, oldest first",
)
def list_session_events(request: HttpRequest, session_id: Text, page: Query[EventsPage]) -> dict[str, Any]:
    """Without parameters the first 100. While `has_more`, pass `next_after` as `after` (or `next_before` as `before`).

    To follow a session, pass the id of the last event that you have seen as `after`: new events come after it. Without
    either `after` or `before` the page begins at the session's first event.
    """
    ownership.require_session_read_access(get_request_key_identity(request), session_id)
    sessions.require_session(session_id)
    # By the context's columns, all of one index: by the event's own, 100,000 rows are sorted for a page.
    events = Event.objects.filter(context__session_id=session_id)
    if page.after is not None:
        events = events.filter(events_before_or_after_filter(session_id, page.after, "gt"))
    order = ["context__instant_us", "context__event_id"]
    if page.before is not None:
        events = events.filter(events_before_or_after_filter(session_id, page.before, "lt"))
        order = [f"-{column}" for column in order]
    event_rows = list(events.order_by(*order)[: page.limit + 1])
    rows, has_more = event_rows[: page.limit], len(event_rows) > page.limit
    goes_on_at = rows[-1].pk if has_more else None
    backwards = page.before is not None
    return {
        "events": [wire.event_as_json(row) for row in (reversed(rows) if backwards else rows)],
        "has_more": has_more,
        "next_after": None if backwards else goes_on_at,
        "next_before": goes_on_at if backwards else None,
    }


def events_before_or_after_filter(session_id: str, event_id: int, side: str) -> Q:
    """Return the condition for events on one side (`gt`, `lt`) of an event of the session."""
    events: QuerySet[Event, Any] = Event.objects.filter(pk=event_id, session_id=session_id)
    instant = events.values_list("context__instant_us", flat=True).first()
    if instant is None:
        raise BadRequest(f"The session has no event {event_id}")
    same = Q(context__instant_us=instant, **{f"context__event_id__{side}": event_id})
    bound = Q(**{f"context__instant_us__{side}e": instant})  # the index begins to be read there
    return bound & (Q(**{f"context__instant_us__{side}": instant}) | same)


class SessionBinding(BaseModel):
    """Which executor runs the session, and where."""

    executor_session_id: Text
    hostname: Text
    executor_profile: Text
    project_dir: Text | None = None


@router.post(
    "/sessions/{session_id}/bind",
    auth=build_scoped_key_auth(*SESSION_KEEPERS),
    response={200: ChangedSession, **error_responses(404, 409)},
    operation_id="bind_session",
    summary="Bind a session to its executor",
)
def bind_session(request: HttpRequest, session_id: Text, body: SessionBinding) -> dict[str, Any]:
    """The session's status becomes `running`. 409 where an agent's key gives another session's executor_session_id."""
    ownership.require_session_write_access(get_request_key_identity(request), session_id)
    ownership.require_unused_executor_id(
        get_request_key_identity(request), session_id, body.executor_session_id
    )
    session = sessions.bind_session_executor(session_id, **body.model_dump())
    return {"ok": True, "session": wire.session_as_json(session)}


class SessionMetadata(BaseModel):
    """What an executor may change; absent and null leave a field as it is."""

    project_dir: Text | None = None
    agent_name: Text | None = None
    last_resumed_at: Text | None = None
    executor_session_id: Text | None = None
    executor_profile: Text | None = None
    hostname: Text | None = None


@router.patch(
    "/sessions/{session_id}/metadata",
    auth=build_scoped_key_auth(*SESSION_KEEPERS),
    response={200: ChangedSession, **error_responses(404, 409)},
    operation_id="update_session_metadata",
    summary="Update a session's fields",
)
def update_session_metadata(request: HttpRequest, session_id: Text, body: SessionMetadata) -> dict[str, Any]:
    """A `last_resumed_at` that is not a time is kept and shown as it was sent.

    409 where an agent's key gives another session's executor_session_id.
    """
    ownership.require_session_write_access(get_request_key_identity(request), session_id)
    ownership.require_unused_executor_id(
        get_request_key_identity(request), session_id, body.executor_session_id
    )
    session = sessions.save_session_metadata(session_id, body.model_dump())
    return {"ok": True, "session": wire.session_as_json(session)}


class StopOut(Ok):
    """The result of a stop. `run_id` and `message` are present where they apply."""

    run_id: str | None = None
    session_id: str
    status: str
    message: str | None = None


def stop_result_as_json(stop: runs.StopResult) -> dict[str, Any]:
    """Return a Stop as the wire shows it, without what it does not have."""
    parts = {
        "ok": True,
        "run_id": stop.run_id,
        "session_id": stop.session_id,
        "status": stop.status,
        "message": stop.message,
    }
    return {name: value for name, value in parts.items() if value not in ("", None)}


@router.post(
    "/sessions/{session_id}/stop",
    auth=build_scoped_key_auth(*SESSION_KEEPERS),
    response={200: StopOut, **error_responses(404)},
    exclude_unset=True,
    operation_id="stop_session",
    summary="Stop a session",
)
def stop_session(request: HttpRequest, session_id: Text) -> dict[str, Any]:
    """Stops the running run, or else cancels the queued one; for a resumed session, its latest run.

    A running run is stopped by its runner, which learns of it at once; the session is `stopping` until then. The
    process of an idle session is stopped in the same way.
    """
    ownership.require_session_write_access(get_request_key_identity(request), session_id)
    return stop_result_as_json(
        runs.request_session_stop(
            session_id, actor=get_request_key_identity(request).caller_actor, now=timezone.now()
        )
    )


class DeletedRows(Schema):
    """How many rows were deleted."""

    session: bool = True
    events_count: int
    runs_count: int


class DeletedSession(Ok):
    """What was deleted with the session."""

    session_id: str
    deleted: DeletedRows
    runs_removed_from_cache: int


@router.delete(
    "/sessions/{session_id}",
    auth=build_scoped_key_auth(*SESSION_KEEPERS),
    response={200: DeletedSession, **error_responses(404, 409)},
    operation_id="delete_session",
    summary="Delete a session, its events and its runs",
)
def delete_session(request: HttpRequest, session_id: Text) -> dict[str, Any]:
    """409 while a runner works on it or keeps its process: stop it first. Its children become sessions of their own."""
    ownership.require_session_write_access(get_request_key_identity(request), session_id)
    removal = sessions.remove_session(
        session_id, actor=get_request_key_identity(request).caller_actor, now=timezone.now()
    )
    return {
        "ok": True,
        "session_id": session_id,
        "deleted": {"session": True, "events_count": removal.events, "runs_count": removal.runs},
        "runs_removed_from_cache": removal.runs,
    }
