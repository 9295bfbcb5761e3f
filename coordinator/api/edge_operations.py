"""The API's operations that the edge serves without Django: ingest, hooks, MCP, streams and long polls.

Each is declared once, in `OPERATIONS`. coordinator/edge/app.py routes by method and path, admits keys with one of its
scopes, and reads a body up to its limit; `add_edge_operations` describes it in the OpenAPI document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ninja import Schema
from pydantic import Field

from coordinator.api.access import AccessAnswer, AccessAnswers, AccessCheck, AccessChecks
from coordinator.api.shared_types import Ok, Problem
from coordinator.identity import scopes
from coordinator.identity.declarations import ANYONE
from coordinator.identity.roles import VIEWER
from coordinator.lib.body_limits import EVENTS, MESSAGE, QUESTION, SMALL, BodyAllowance
from coordinator.sessions.agent_programs import AGENT_TITLES

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
    """The result of each event of a batch, in order: its id, or why it was refused."""

    accepted: int
    rejected: int
    results: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class EdgeOperation:
    """An operation of the edge. `path` names its parameters in braces, at most one that the endpoint is given."""

    method: str
    path: str
    name: str  # in the OpenAPI document, and by which the edge finds the endpoint
    scopes: tuple[str, ...] = ()  # a key needs one of them
    role: str = ""  # or the least role of the person whose session opens it; ANYONE: nothing is asked for
    body: BodyAllowance = SMALL
    has_slashes: bool = False  # the path's parameter may hold slashes
    # What the document says. Without a summary it is not described: it is for browsers, or described by Django's.
    tag: str = ""
    summary: str = ""
    description: str = ""
    parameters: list[dict[str, Any]] = field(default_factory=list)
    request: dict[str, Any] | None = None
    answers: Mapping[int, Any] = field(default_factory=dict)  # by status: the name of a model, or a schema

    @property
    def route(self) -> tuple[str, str]:
        """The method, and the pattern of the paths."""
        return self.method, re.sub(r"\{\w+\}", "(.+)" if self.has_slashes else "([^/]+)", self.path)

    def build_openapi_operation(self) -> dict[str, Any]:
        """Return the operation's entry in the OpenAPI document."""
        offered = [scope for scope in self.scopes if scope != scopes.GATEWAY]  # which nobody can choose
        entry: dict[str, Any] = {
            "operationId": self.name,
            "tags": [self.tag],
            "summary": self.summary,
            "description": self.description,
            "parameters": self.parameters,
            "responses": {
                str(status): build_openapi_response_entry(answer_label)
                for status, answer_label in self.answers.items()
            },
            "security": [{KEY: []}] if offered else [],
        }
        if offered:
            entry["x-scopes"] = offered
        if self.request is not None:
            entry["requestBody"] = self.request
        return entry


MODELS: tuple[type[Schema], ...] = (
    *(EventIn, BatchResult, Ok, Problem),
    *(AccessCheck, AccessChecks, AccessAnswer, AccessAnswers),
)


def add_edge_operations(document: dict[str, Any]) -> None:
    """Add the edge's operations to an OpenAPI document."""
    schemas = document["components"].setdefault("schemas", {})
    for model in MODELS:
        schema = model.model_json_schema(ref_template=REF)
        for name, inner in schema.pop("$defs", {}).items():
            schemas.setdefault(name, inner)
        schemas.setdefault(model.__name__, schema)
    for operation in OPERATIONS:
        if operation.summary:
            entry = document["paths"].setdefault(operation.path, {})
            entry[operation.method.lower()] = operation.build_openapi_operation()


def build_openapi_response_entry(content: Any) -> dict[str, Any]:
    if content is None:
        return {"description": "No content"}
    if content == "stream":
        return {"description": "Frames", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    if content == "text":
        return {"description": "Text", "content": {"text/plain": {"schema": {"type": "string"}}}}
    schema = {"$ref": REF.format(model=content)} if isinstance(content, str) else content
    return {"description": "", "content": {"application/json": {"schema": schema}}}


def build_openapi_schema_reference(name: str) -> dict[str, str]:
    return {"$ref": REF.format(model=name)}


def build_openapi_parameter(
    location: str, name: str, schema: dict[str, Any], description: str, *, needed: bool = False
) -> dict[str, Any]:
    return {"in": location, "name": name, "schema": schema, "required": needed, "description": description}


def build_openapi_request_body(schema: dict[str, Any], **other_schemas: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    return {
        "required": True,
        "content": content | {name: {"schema": other} for name, other in other_schemas.items()},
    }


def build_openapi_object_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT = {"type": "string"}
SESSION = build_openapi_parameter("path", "session_id", TEXT, "The session", needed=True)
EVENT = build_openapi_schema_reference("EventIn")
_IDS = {"type": "array", "items": TEXT}
POLL_ANSWER = {
    "type": "object",
    "description": "One of `run`, `stop_runs` with `stop_sessions`, and `deregistered`.",
    "properties": {
        "run": {
            "allOf": [{"$ref": REF.format(model="RunOut")}],
            "description": "A run to start, claimed for this runner, with the prompt and the parameters of the order.",
            "properties": {
                "scope": {"description": "Always null; newer runners look for it."},
                "resolved_agent_blueprint": {
                    "description": "The blueprint with its capabilities merged in; null where there is none, or where "
                    "it cannot be resolved.",
                    "anyOf": [{"$ref": REF.format(model="BlueprintOut")}, {"type": "null"}],
                },
                "blueprint_error": {
                    **TEXT,
                    "description": "Why the blueprint cannot be resolved; only there where it cannot.",
                },
            },
        },
        "stop_runs": {**_IDS, "description": "Runs whose processes the runner must end."},
        "stop_sessions": {
            **_IDS,
            "description": "The same by session. A session whose run has ended is idle: end its waiting process.",
        },
        "deregistered": {
            "const": True,
            "description": "The runner must exit; with this answer it is deregistered.",
        },
    },
}
PROBLEMS = dict.fromkeys((400, 401, 403, 404, 413, 422, 429, 503), "Problem")
ONCE = build_openapi_parameter(
    "header", "Idempotency-Key", TEXT, "A repeated request with the same key gets the answer to the first"
)


def build_local_mcp_call_operation(
    path: str,
    name: str,
    summary: str,
    description: str,
    fields: dict[str, Any],
    *,
    parameters: list[dict[str, Any]] | None = None,
    has_slashes: bool = False,
) -> EdgeOperation:
    """Return an operation for local servers on the agent's machine (`signalbox mcp`)."""
    return EdgeOperation(
        "POST",
        path,
        f"mcp_beside_{name}",
        scopes=scopes.AGENT_SCOPES,
        body=QUESTION,
        has_slashes=has_slashes,
        tag="MCP",
        summary=summary,
        description=description,
        parameters=parameters or [],
        request=build_openapi_request_body({"type": "object", "properties": fields}),
        answers={200: {"type": "object"}, **PROBLEMS},
    )


def build_mcp_gateway_edge_operations(
    path: str, name: str, purpose: str, parameters: list[dict[str, Any]]
) -> list[EdgeOperation]:
    """Return the operations of an endpoint of the MCP gateway."""
    headers = {
        "Mcp-Session-Id": "The MCP session, in versions before 2026-07-28",
        "X-Signalbox-Agent": "The agent, for a key that is not bound to one",
        "X-Signalbox-Session": "The running session that the calls belong to",
    }
    ways = {
        "post": "Send an MCP message",
        "get": "Listen to a server's notifications",
        "delete": "End an MCP session",
    }
    return [
        EdgeOperation(
            method.upper(),
            path,
            f"mcp_{name}_{method}",
            scopes=scopes.GATEWAY_SCOPES,
            body=MESSAGE if method == "post" else SMALL,
            has_slashes=True,
            tag="MCP",
            summary=summary,
            description=(
                f"MCP over streamable HTTP: {purpose}. Versions 2025-06-18, 2025-11-25 (with Mcp-Session-Id, which "
                "survives restarts) and 2026-07-28. Grants and rules decide each `tools/call`; where they say "
                "ask, the call waits for a person."
            ),
            parameters=[
                *parameters,
                *(
                    build_openapi_parameter("header", header_name, TEXT, header_label)
                    for header_name, header_label in headers.items()
                ),
            ],
            request=build_openapi_request_body({"type": "object"}) if method == "post" else None,
            answers={200: {"type": "object"} if method != "get" else "stream", **PROBLEMS},
        )
        for method, summary in ways.items()
    ]


OPERATIONS: tuple[EdgeOperation, ...] = (
    EdgeOperation(
        "POST",
        "/sessions/{session_id}/events",
        "post_session_event",
        scopes=scopes.REPORTERS,
        body=EVENTS,
        tag="Sessions",
        summary="Post an event of a session",
        description="Answers once the event is committed, or refuses it within four seconds.",
        parameters=[build_openapi_parameter("path", "session_id", TEXT, "The session", needed=True), ONCE],
        request=build_openapi_request_body(EVENT),
        answers={201: "Ok", **PROBLEMS},
    ),
    EdgeOperation(
        "POST",
        "/api/events",
        "post_events",
        scopes=scopes.REPORTERS,
        body=EVENTS,
        tag="Sessions",
        summary="Post events of any sessions, as an array or as NDJSON",
        description="At most 10,000 events. The valid ones are committed together; each gets a result.",
        parameters=[ONCE],
        request=build_openapi_request_body(
            {"type": "array", "items": EVENT}, **{"application/x-ndjson": {"type": "string"}}
        ),
        answers={200: "BatchResult", **PROBLEMS},
    ),
    EdgeOperation(
        "POST",
        "/hooks/{agent}",
        "post_hook",
        scopes=scopes.AGENT_SCOPES,
        body=EVENTS,
        tag="Hooks",
        summary="Post a hook of a coding agent",
        description="Every hook, known or not, becomes events of the session with its executor_session_id. The "
        "answer is empty, so the agent decides by itself, unless a rule or a grant applies to the "
        "call. A PermissionRequest, and a call for which a rule says ask, waits for a person; the "
        "answer is the decision in the hook's own JSON. If nobody decides in time, an agent that "
        "cannot ask in its terminal is told to deny.",
        parameters=[
            build_openapi_parameter(
                "path",
                "agent",
                {"type": "string", "enum": list(AGENT_TITLES)},
                "The agent program",
                needed=True,
            ),
            build_openapi_parameter(
                "query", "wait", {"type": "number"}, "Seconds to wait; less than the hook's timeout"
            ),
            build_openapi_parameter(
                "header", "X-Signalbox-Host", TEXT, "The machine on which the session runs"
            ),
            build_openapi_parameter(
                "header",
                "X-Signalbox-Hook-Id",
                TEXT,
                "An id of 16 to 64 letters, digits, - or _. A hook that is sent again with the same id is the "
                "same hook, and asks the same question",
            ),
            build_openapi_parameter(
                "header",
                "X-Signalbox-Age",
                {"type": "number"},
                "For a hook that is sent late: how many seconds ago it happened. It is recorded, and asks nobody",
            ),
            build_openapi_parameter(
                "header", "X-Signalbox-Denied", TEXT, "With X-Signalbox-Age: why the call did not run"
            ),
        ],
        request=build_openapi_request_body(
            {"type": "object", "required": ["session_id"], "properties": {"session_id": TEXT}}
        ),
        answers={200: {"type": "object"}, **PROBLEMS},
    ),
    *(
        EdgeOperation(
            "POST",
            f"/v1/{kind}",
            f"export_{kind}",
            scopes=scopes.REPORTERS,
            body=EVENTS,
            tag="Telemetry",
            summary=f"Export OpenTelemetry {kind} (OTLP/HTTP)",
            description="JSON or protobuf, plain or gzip; the answer has the same format. Claude Code's "
            "records join the sessions of its hooks; GenAI spans of other agents create sessions "
            "of their own. Sending records again changes nothing. Metrics are accepted and "
            "ignored.",
            request=build_openapi_request_body(
                {"type": "object", "additionalProperties": True},
                **{"application/x-protobuf": {"type": "string", "format": "binary"}},
            ),
            answers={
                200: {"type": "object"},
                **PROBLEMS,
            },
        )
        for kind in ("logs", "traces", "metrics")
    ),
    build_local_mcp_call_operation(
        "/api/mcp/calls",
        "ask",
        "Ask whether a tool call may be sent to a server beside the agent",
        "`decision` is allow, deny (with `reason`) or wait (with `card`, the address where a person decides). After "
        "wait, ask again with `call_id`. Held for up to 25 s while a person is asked. For another request than a call, "
        "`method` and `tool` name it and `arguments` are its parameters; with `from_server` it is one of the server to "
        "its client. Nobody is asked about those.",
        {
            "server": TEXT,
            "tool": TEXT,
            "arguments": TEXT,
            "definition": {},
            "session": TEXT,
            "call_id": TEXT,
            "begins": {"type": "boolean"},
            "method": TEXT,
            "from_server": {"type": "boolean"},
        },
    ),
    build_local_mcp_call_operation(
        "/api/mcp/calls/{call_id}/cancel",
        "cancel",
        "Cancel a call that was not sent",
        "Closes its card, unless another call waits for it, or the `reason` is that the client's own time was up. A "
        "client that chooses the `call_id` itself, in the question that `begins` the call, can cancel it before the "
        "answer comes.",
        {"reason": TEXT},
        parameters=[build_openapi_parameter("path", "call_id", TEXT, "The call", needed=True)],
    ),
    build_local_mcp_call_operation(
        "/api/mcp/calls/{call_id}/end",
        "end",
        "Report how a call ended",
        "Send it once, for a call that was allowed.",
        {"is_error": {"type": "boolean"}, "milliseconds": {"type": "integer"}, "result": TEXT},
        parameters=[build_openapi_parameter("path", "call_id", TEXT, "The call", needed=True)],
    ),
    build_local_mcp_call_operation(
        "/api/mcp/listings/{server}",
        "listing",
        "Find which tools of a server the agent may see",
        "Signalbox stores the tools' definitions to notice changes.",
        {"tools": {"type": "array", "items": {}}},
        parameters=[build_openapi_parameter("path", "server", TEXT, "The server's name", needed=True)],
        has_slashes=True,
    ),
    *build_mcp_gateway_edge_operations("/mcp", "all", "the tools of all servers, named `server__tool`", []),
    *build_mcp_gateway_edge_operations(
        "/mcp/collections/{name}",
        "collection",
        "the tools of a collection, named `server__tool`",
        [build_openapi_parameter("path", "name", TEXT, "The collection's name", needed=True)],
    ),
    *build_mcp_gateway_edge_operations(
        "/mcp/{server}",
        "server",
        "the registered MCP server as this key's agent may use it",
        [build_openapi_parameter("path", "server", TEXT, "The server's name", needed=True)],
    ),
    EdgeOperation(
        "GET",
        "/runner/runs",
        "poll_for_run",
        scopes=scopes.RUNNERS,
        tag="Runner",
        summary="Wait for a run, a stop command or deregistration",
        description="Held for SIGNALBOX_RUNNER_POLL_TIMEOUT (default 30 s), then 204: poll again at once. Answers as "
        "soon as there is something: `{deregistered: true}` before `{stop_runs, stop_sessions}` before "
        "`{commands}` before `{run}`, never two of them. For a runner that registered with `offers`, "
        "`cancel_runs` names runs whose turn must end and whose process goes on (report them as completed and "
        "idle), beside the others or alone, and `run` has `driven`: the state of its session. A run is claimed "
        "for this runner. If it is not reported as started "
        "within 60 s, or the connection breaks off, it waits for a runner again. A stop is sent again "
        "after 15 s and counts as done after 60 s. A runner without a sign of life is stale after "
        "SIGNALBOX_RUNNER_STALE_AFTER (120 s) and is removed after SIGNALBOX_RUNNER_REMOVE_AFTER (600 s).",
        parameters=[
            build_openapi_parameter("query", "runner_id", TEXT, "The runner", needed=True),
            build_openapi_parameter(
                "query",
                "free",
                {"type": "integer", "minimum": 0},
                "How many more runs it can take; with 0 it gets none now",
            ),
        ],
        answers={200: POLL_ANSWER, 204: None, **PROBLEMS},
    ),
    EdgeOperation(
        "POST",
        "/runner/sessions/{session_id}/updates",
        "tell_updates",
        scopes=scopes.RUNNERS,
        body=EVENTS,
        tag="Runner",
        summary="Report what a driven agent does",
        description="Each of `updates` is `{n, at, update}`: `update` is a `session/update` of the Agent Client "
        "Protocol as the agent sent it, or one of Signalbox's own kinds (`signalbox/agent`, "
        "`signalbox/turn_started`, "
        "`signalbox/turn_ended`, `signalbox/terminal`, `signalbox/changes`, `signalbox/agent_failed`, "
        "`signalbox/command_done`, `signalbox/unknown`). `n` counts up in the session from 1. Updates that "
        "were accepted before are ignored. After a gap none are accepted: send again from `next` on. Only the "
        "runner that took the session's last run may report.",
        parameters=[SESSION],
        request=build_openapi_request_body(
            build_openapi_object_schema(
                runner_id=TEXT, run_id=TEXT, updates={"type": "array", "items": {"type": "object"}}
            )
        ),
        answers={
            200: build_openapi_object_schema(ok={"type": "boolean"}, next={"type": "integer"}),
            **PROBLEMS,
        },
    ),
    EdgeOperation(
        "POST",
        "/runner/sessions/{session_id}/permission",
        "ask_for_agent",
        scopes=scopes.RUNNERS,
        body=EVENTS,
        tag="Runner",
        summary="Ask whether a driven agent's call may run",
        description="`tool_call` and `options` are those of the agent's `session/request_permission`, `known` is what "
        "the agent reported of that call before. Rules decide first, then a person. Held for 25 s; `outcome` is null "
        "while nobody has answered: send the same again. Else it is `{optionId}`, one of the agent's "
        "options, or "
        "`{cancelled: true}`; `reason` is for the agent to read.",
        parameters=[SESSION],
        request=build_openapi_request_body(
            build_openapi_object_schema(
                runner_id=TEXT,
                run_id=TEXT,
                tool_call={"type": "object"},
                options={"type": "array", "items": {"type": "object"}},
                known={},
            )
        ),
        answers={
            200: build_openapi_object_schema(permission_request_id={}, outcome={}, reason={}),
            **PROBLEMS,
        },
    ),
    EdgeOperation(
        "POST",
        "/runner/sessions/{session_id}/permission/withdraw",
        "withdraw_for_agent",
        scopes=scopes.RUNNERS,
        body=EVENTS,
        tag="Runner",
        summary="Withdraw a driven agent's question",
        description="Closes the open question about the call `toolCallId`, if any, with the reason `why`.",
        parameters=[SESSION],
        request=build_openapi_request_body(
            build_openapi_object_schema(runner_id=TEXT, toolCallId=TEXT, why=TEXT)
        ),
        answers={200: "Ok", **PROBLEMS},
    ),
    EdgeOperation(
        "GET",
        "/sse/sessions",
        "follow_sessions",
        scopes=scopes.READERS,
        tag="Sessions",
        summary="Follow sessions and their events live",
        description="Server-sent events: init, session_created, session_updated, session_deleted, event, run_failed, "
        "and `reset` if the client missed more events than are kept. Last-Event-ID replays missed events. "
        "EventSource cannot send headers, so only this endpoint also takes the key as "
        "`?api_key=`.",
        parameters=[
            build_openapi_parameter("query", "session_id", TEXT, "Only this session"),
            build_openapi_parameter(
                "query",
                "include_init",
                {"type": "boolean"},
                "Whether to begin with an `init` event that lists the sessions",
            ),
            build_openapi_parameter("query", "api_key", TEXT, "The key, for EventSource"),
            build_openapi_parameter(
                "header", "Last-Event-ID", TEXT, "The last event id that the client received"
            ),
        ],
        answers={200: "stream", **PROBLEMS},
    ),
    EdgeOperation(
        "GET",
        "/api/permission-requests/{request_id}/wait",
        "wait_for_verdict",
        scopes=scopes.READERS,
        tag="permission requests",
        summary="Wait for a person's decision",
        description="Answers once the request is decided, or after the timeout. While it is pending, ask again.",
        parameters=[
            build_openapi_parameter("path", "request_id", TEXT, "The request", needed=True),
            build_openapi_parameter("query", "timeout", {"type": "number", "minimum": 0}, "Seconds to wait"),
        ],
        answers={200: "PermissionAnswer", **PROBLEMS},
    ),
    EdgeOperation(
        "GET",
        "/health/ready",
        "ready",
        role=ANYONE,
        tag="Health",
        summary="Check whether this worker can take requests",
        description="503 with `reasons` while the database does not answer or lacks migrations, the feed or "
        "the writer is behind, or the server is stopping. No key is needed.",
        answers={200: {"type": "object"}, 503: {"type": "object"}},
    ),
    EdgeOperation(
        "GET",
        "/metrics",
        "metrics",
        scopes=tuple(sorted(scopes.OVERSEERS)),
        tag="Health",
        summary="Get the metrics of all workers, for Prometheus",
        description="Programs on this machine need no key, unless a proxy on it forwards requests from others.",
        answers={200: "text", **PROBLEMS},
    ),
    EdgeOperation(
        "POST",
        "/api/access/check",
        "coordinator_api_access_check_tool_access",  # its name since it was Django's
        scopes=scopes.READERS,
        body=QUESTION,
        tag="access",
        summary="Check whether an agent may call a tool",
        description="Answers one verdict, or `results` for `checks`.",
        request=build_openapi_request_body(
            {
                "anyOf": [
                    build_openapi_schema_reference("AccessChecks"),
                    build_openapi_schema_reference("AccessCheck"),
                ]
            }
        ),
        answers={
            200: {
                "anyOf": [
                    build_openapi_schema_reference("AccessAnswer"),
                    build_openapi_schema_reference("AccessAnswers"),
                ]
            },
            **PROBLEMS,
        },
    ),
    # Django describes it (api/chat.py).
    EdgeOperation(
        "GET",
        "/api/chat/{agent_id}/messages/wait",
        "wait_for_chat_messages",
        scopes=scopes.CHAT_READERS,
        has_slashes=True,
    ),
    # For browsers: a person's session opens it.
    EdgeOperation("GET", "/ui/live/", "stream_live_page", role=VIEWER),
)
