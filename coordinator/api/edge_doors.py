"""The API's doors that Django does not stand behind, described by hand: ingest, streams and long polls.

coordinator/edge serves them (design §5); `describe` adds them to the OpenAPI document.
"""

from __future__ import annotations

from typing import Any

from ninja import Schema
from pydantic import Field

from coordinator.api.vocabulary import Ok, Problem

KEY = "KeyAuth"  # how the document names api/auth.py's guard
REF = "#/components/schemas/{model}"


class EventIn(Schema):
    """An event as an executor sends it. Unknown fields are ignored."""

    event_type: str = Field(
        description="session_start, pre_tool, post_tool, message, session_stop, result, …"
    )
    session_id: str = Field(description="The session in the path")
    timestamp: str = Field(description="When it happened; kept byte for byte")
    tool_name: str | None = None
    tool_input: dict[str, Any] | None = None
    tool_output: Any = None
    error: str | None = None
    exit_code: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    reason: str | None = None
    role: str | None = None
    content: list[dict[str, Any]] | None = None
    result_text: str | None = Field(None, description="Of a `result` event; kept in tool_output")
    result_data: Any = None


class BatchResult(Schema):
    """What became of each event of a batch, in order: its id, or why it was refused."""

    accepted: int
    rejected: int
    results: list[dict[str, Any]]


MODELS: tuple[type[Schema], ...] = (EventIn, BatchResult, Ok, Problem)


def describe(document: dict[str, Any]) -> None:
    """Add the edge's doors to an OpenAPI document, beside what stands there already."""
    schemas = document["components"].setdefault("schemas", {})
    for model in MODELS:
        schema = model.model_json_schema(ref_template=REF)
        schemas.update(schema.pop("$defs", {}))
        schemas.setdefault(model.__name__, schema)
    for path, methods in DOORS.items():
        for method, operation in methods.items():
            told = {name: value for name, value in operation.items() if name != "answers"}
            told["responses"] = {str(status): _answer(what) for status, what in operation["answers"].items()}
            told["security"] = [{KEY: []}] if "x-scopes" in operation else []
            document["paths"].setdefault(path, {})[method] = told


def _answer(content: Any) -> dict[str, Any]:
    if content is None:
        return {"description": "No content"}
    if content == "stream":
        return {"description": "Frames", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    if content == "text":
        return {"description": "Text", "content": {"text/plain": {"schema": {"type": "string"}}}}
    schema = {"$ref": REF.format(model=content)} if isinstance(content, str) else content
    return {"description": "", "content": {"application/json": {"schema": schema}}}


def _parameter(
    place: str, name: str, schema: dict[str, Any], says: str, *, needed: bool = False
) -> dict[str, Any]:
    return {"in": place, "name": name, "schema": schema, "required": needed, "description": says}


def _body(schema: dict[str, Any], **others: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    return {
        "required": True,
        "content": content | {name: {"schema": other} for name, other in others.items()},
    }


TEXT = {"type": "string"}
EVENT = {"$ref": REF.format(model="EventIn")}
PROBLEMS = dict.fromkeys((400, 401, 403, 404, 413, 422, 429, 503), "Problem")
ONCE = _parameter(
    "header", "Idempotency-Key", TEXT, "A repeat with the same key is answered alike, once done"
)

DOORS: dict[str, dict[str, dict[str, Any]]] = {
    "/sessions/{session_id}/events": {
        "post": {
            "operationId": "post_session_event",
            "x-scopes": ["runner", "agent", "operator"],
            "tags": ["Sessions"],
            "summary": "Post an event of a session",
            "description": "Answered when it is committed, or refused within four seconds.",
            "parameters": [_parameter("path", "session_id", TEXT, "The session", needed=True), ONCE],
            "requestBody": _body(EVENT),
            "answers": {201: "Ok", **PROBLEMS},
        }
    },
    "/api/events": {
        "post": {
            "operationId": "post_events",
            "x-scopes": ["runner", "agent", "operator"],
            "tags": ["Sessions"],
            "summary": "Post events of any sessions, as an array or as NDJSON",
            "description": "At most 10,000. Those that are good are committed together; each gets its result.",
            "parameters": [ONCE],
            "requestBody": _body(
                {"type": "array", "items": EVENT}, **{"application/x-ndjson": {"type": "string"}}
            ),
            "answers": {200: "BatchResult", **PROBLEMS},
        }
    },
    "/hooks/claude-code": {
        "post": {
            "operationId": "post_claude_code_hook",
            "x-scopes": ["agent"],
            "tags": ["Hooks"],
            "summary": "Take in a hook of Claude Code",
            "description": (
                "Any hook, known or not, becomes events of the session with that executor_session_id. Answered "
                "empty, which leaves everything to Claude Code, unless a rule or a grant speaks of the call. A "
                "PermissionRequest, and a call that a rule wants asked, waits for a person; then the answer is "
                "in the hook's own JSON."
            ),
            "parameters": [
                _parameter(
                    "query", "wait", {"type": "number"}, "Seconds to wait; less than the hook's timeout"
                ),
                _parameter("header", "X-Signalbox-Host", TEXT, "The machine that the session runs on"),
            ],
            "requestBody": _body({"type": "object", "required": ["session_id"]}),
            "answers": {200: {"type": "object"}, **PROBLEMS},
        }
    },
    **{
        f"/v1/{kind}": {
            "post": {
                "operationId": f"export_{kind}",
                "x-scopes": ["agent", "runner", "operator"],
                "tags": ["Telemetry"],
                "summary": f"Take OpenTelemetry {kind} (OTLP/HTTP)",
                "description": (
                    "JSON or protobuf, plain or gzip, answered in kind. Claude Code's records join the sessions of "
                    "its hooks; GenAI spans of other agents make sessions of their own. Sent again, they change "
                    "nothing. Metrics are taken and not kept."
                ),
                "parameters": [],
                "requestBody": _body(
                    {"type": "object"}, **{"application/x-protobuf": {"type": "string", "format": "binary"}}
                ),
                "answers": {
                    200: {"type": "object"},
                    **PROBLEMS,
                },
            }
        }
        for kind in ("logs", "traces", "metrics")
    },
    "/runner/runs": {
        "get": {
            "operationId": "poll_for_run",
            "x-scopes": ["runner"],
            "tags": ["Runner"],
            "summary": "Wait for a run, a stop or a goodbye",
            "description": (
                "Held for SIGNALBOX_RUNNER_POLL_TIMEOUT, then 204. Answers `{run}`, which is claimed for this "
                "runner, `{stop_runs, stop_sessions}` or `{deregistered: true}`, as soon as there is one. A run "
                "that is not reported as started within a minute waits for a runner again."
            ),
            "parameters": [_parameter("query", "runner_id", TEXT, "Who asks", needed=True)],
            "answers": {200: {"type": "object"}, 204: None, **PROBLEMS},
        }
    },
    "/sse/sessions": {
        "get": {
            "operationId": "follow_sessions",
            "x-scopes": ["read", "operator", "runner", "agent"],
            "tags": ["Sessions"],
            "summary": "Follow sessions and their events live",
            "description": (
                "Server-sent events: init, session_created, session_updated, session_deleted, event, run_failed, "
                "and `reset` where more was missed than is kept. Last-Event-ID replays what was missed. "
                "EventSource cannot send headers: this door alone also takes the key as `?api_key=`."
            ),
            "parameters": [
                _parameter("query", "session_id", TEXT, "Only this session"),
                _parameter(
                    "query", "include_init", {"type": "boolean"}, "Whether to begin with all sessions"
                ),
                _parameter("query", "api_key", TEXT, "The key, for EventSource"),
                _parameter("header", "Last-Event-ID", TEXT, "The last id that was seen"),
            ],
            "answers": {200: "stream", **PROBLEMS},
        }
    },
    "/api/permission-requests/{request_id}/wait": {
        "get": {
            "operationId": "wait_for_verdict",
            "x-scopes": ["agent", "runner", "operator", "read"],
            "tags": ["permission requests"],
            "summary": "Wait for a verdict",
            "description": "The request as it stands, once it is decided or the time is over; then ask again.",
            "parameters": [
                _parameter("path", "request_id", TEXT, "The request", needed=True),
                _parameter("query", "timeout", {"type": "number", "minimum": 0}, "Seconds to wait"),
            ],
            "answers": {200: {"type": "object"}, **PROBLEMS},
        }
    },
    "/health/ready": {
        "get": {
            "operationId": "ready",
            "tags": ["Health"],
            "summary": "Say whether this worker may be sent requests",
            "description": (
                "503 with `reasons` while the database does not answer or lacks migrations, the feed or the writer "
                "does not keep up, or the server stops. No key is asked for."
            ),
            "parameters": [],
            "answers": {200: {"type": "object"}, 503: {"type": "object"}},
        }
    },
    "/metrics": {
        "get": {
            "operationId": "metrics",
            "x-scopes": ["operator", "read"],
            "tags": ["Health"],
            "summary": "Figures of all workers for Prometheus",
            "description": "From this machine itself, where no proxy passes others on, no key is asked for.",
            "parameters": [],
            "answers": {200: "text", **PROBLEMS},
        }
    },
}
