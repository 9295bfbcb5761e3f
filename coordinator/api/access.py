"""Access checks for machines: one call, or everything that an agent may do. Only people change grants."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Schema
from pydantic import AwareDatetime

from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.errors import Forbidden, UnprocessableRequest
from coordinator.identity.keys import KeyIdentity
from coordinator.identity.scopes import READERS
from coordinator.lib import instants
from coordinator.mcp.servers import tools as mcp_tools
from coordinator.policy.grants import access
from coordinator.policy.grants.access import Verdict

router = Router(tags=["access"])

Name = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


class AccessQuestionIn(Schema):
    """A tool call that an agent wants to make."""

    server_id: Name
    tool_name: Name
    agent_id: Name | None = Field(None, description="May be left out with a key that is bound to an agent.")


class AccessCheck(AccessQuestionIn):
    """One question."""

    wait: Annotated[float, Field(ge=0, le=600)] = Field(
        0,
        description="Seconds to wait while the answer is `deny`. It returns as soon as a person grants the call.",
    )


class AccessChecks(Schema):
    """Many questions at once."""

    checks: Annotated[list[AccessQuestionIn], Field(max_length=2000)]


class AccessAnswer(Schema):
    """A verdict, with the rule and the grant that decided, its end and the reason."""

    verdict: str = Field(
        description="`allow`, `deny`, or `ask`: a person must approve each call, so do not make it unapproved."
    )
    source: str = Field(description="`tool_grant`, `server_grant`, `default_policy` or `unknown_server`")
    unknown_server: bool = Field(
        description="No server of this name is registered. Grants for the name still apply."
    )
    grant_id: int | None
    until: str | None = Field(description="When the deciding grant ends; null if it has no known end.")
    then: str | None = Field(
        description="The verdict once the deciding grant has ended; null as for `until`."
    )
    reason: str


class NamedAccessAnswer(AccessAnswer):
    """A verdict beside its question."""

    agent_id: str
    server_id: str
    tool_name: str


class AccessAnswers(Schema):
    """Verdicts in the order of the questions."""

    results: list[NamedAccessAnswer]


class ToolVerdict(AccessAnswer):
    """A verdict on one tool."""

    tool_name: str


class ServerVerdicts(Schema):
    """What an agent may do with one server; `any_tool` holds for tools that are not listed."""

    server_id: str
    default_policy: str | None = Field(description="Null for a server that is not registered.")
    any_tool: AccessAnswer
    tools: list[ToolVerdict]


class AgentAccess(Schema):
    """Everything that an agent may call, or may ask a person for."""

    agent_id: str
    at: str
    servers: list[ServerVerdicts]


def resolve_agent_for_access_check(caller: KeyIdentity, agent_id: str | None) -> str:
    """Return which agent a caller asks about; a key that is bound to an agent asks about that one only."""
    if agent_id is not None and not caller.can_speak_for_agent(agent_id):
        raise Forbidden(
            f"This key is bound to {caller.bound_agents_label} and may not ask about other agents."
        )
    effective_agent_id = agent_id or caller.agent_id
    if not effective_agent_id:
        error = {"type": "missing", "loc": ["body", "agent_id"], "msg": "Field required", "input": None}
        raise UnprocessableRequest([error])
    return effective_agent_id


@router.get(
    "/access/agents/{agent_id}",
    auth=build_scoped_key_auth(*READERS),
    response=AgentAccess,
    summary="List what an agent may call",
)
def list_agent_access(
    request: HttpRequest, agent_id: str, at: AwareDatetime | None = None, denied: bool = False
) -> dict[str, Any]:
    """Returns the servers and tools that the agent may call or ask for, now or `at`; with `denied`, the others too."""
    caller: KeyIdentity = request.auth  # type: ignore[attr-defined] # set by the guard
    resolve_agent_for_access_check(caller, agent_id)
    return agent_access_as_json(agent_id, timezone.now(), at=at, denied=denied)


def agent_access_as_json(
    agent_id: str, now: datetime, *, at: datetime | None, denied: bool
) -> dict[str, Any]:
    """Return the body of `AgentAccess`."""
    policies = access.load_default_policies_by_server(now, agent_id)
    # No tool has the empty name: it represents a tool that nobody has listed.
    tools = {
        server: ["", *names] for server, names in mcp_tools.collect_tool_names_by_server(policies).items()
    }
    matrix = access.resolve_access_matrix([agent_id], tools, now, at=at)
    servers = []
    for (_, server_id), verdicts in matrix.items():
        any_tool = verdicts.pop("")
        answers = [
            tool_verdict_as_json(tool, verdict)
            for tool, verdict in verdicts.items()
            if denied or not verdict.is_denied
        ]
        if answers or denied or not any_tool.is_denied:
            servers.append(
                {
                    "server_id": server_id,
                    "default_policy": policies[server_id],
                    "any_tool": any_tool.verdict_as_json(),
                    "tools": answers,
                }
            )
    return {"agent_id": agent_id, "at": instants.format_canonical_instant(at or now), "servers": servers}


def tool_verdict_as_json(tool: str, verdict: Verdict) -> dict[str, Any]:
    return {"tool_name": tool, **verdict.verdict_as_json()}
