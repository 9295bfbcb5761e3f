"""The rows of "Who decides" as they fit requests: what a row names, and what of a request it is compared with.

A row compares what its fields name with all the names that a request has: a tool of an MCP server is known by the
name in the call and by its server's own. A field that is empty fits everything; one that is not fits no request that
does not say it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.errors import UnprocessableRequest
from coordinator.mcp.servers.names import (
    PREFIX,
    find_server_tools_meant_by_call,
    name_in_calls,
    unwrap_gateway_call_or_none,
)
from coordinator.models import DecidingRule, PermissionRequest
from coordinator.policy.grants.access_requests import PERMISSION_TYPE as ACCESS
from coordinator.policy.grants.access_requests import parse_access_request_or_none
from coordinator.policy.requests.approvals import request_context
from coordinator.policy.rules.tool_rules import matches_tool_name

MOST_RULES = 60  # a browser sends each field of each row, and a form may have a thousand
LONGEST_NAME = 500
TERMS = ("permission_type", "tool", "server", "agent", "host")
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class RequestTerms:
    """What of a request rows are compared with. `exact_values` are servers of which every tool is asked for at once."""

    permission_type: str = ""
    tools: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    host: str = ""
    exact_values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DecidingRuleRow:
    """A row as it decides: saved, or about to be. `number` is its place in the list, from 1.

    `groups` and `people` are ids of those who may decide; where both are empty, every approver may.
    """

    number: int
    permission_type: str = ""
    tool: str = ""
    server: str = ""
    agent: str = ""
    host: str = ""
    groups: tuple[int, ...] = ()
    people: tuple[int, ...] = ()
    needed: int = 1

    @property
    def allows_any_approver(self) -> bool:
        """Say whether the row leaves it to every approver."""
        return not self.groups and not self.people

    @property
    def needs_any_single_approver(self) -> bool:
        """Say whether any single approver decides."""
        return self.allows_any_approver and self.needed == 1

    def matches_terms(self, terms: RequestTerms) -> bool:
        return (
            is_pattern_matching_any_name(self.permission_type, {terms.permission_type})
            and is_pattern_matching_any_name(self.server, terms.servers)
            and is_pattern_matching_any_name(self.agent, terms.agents)
            and is_pattern_matching_any_name(self.host, {terms.host} - {""})
            and (
                is_pattern_matching_any_name(self.tool, terms.tools)
                or self.can_cover_server_tool(terms.exact_values)
            )
        )

    def can_cover_server_tool(self, servers: Iterable[str]) -> bool:
        """Say whether the row names one of a server's tools: who grants all of them grants that one, too."""
        beginnings = [
            _WILD.split(name_pattern.strip(), maxsplit=1)[0] for name_pattern in re.split(r"[|,]", self.tool)
        ]
        return any(
            begun.startswith(of_server) or (of_server.startswith(begun) and _WILD.search(self.tool))
            for of_server in (f"{PREFIX}{name_in_calls(server)}__" for server in servers)
            for begun in beginnings
        )


def is_pattern_matching_any_name(pattern: str, names: Iterable[str]) -> bool:
    return not pattern or any(pattern == name or matches_tool_name(pattern, name) for name in names)


def request_terms(request: PermissionRequest, servers: Iterable[str]) -> RequestTerms:
    """Return what rows compare with a request. `servers` are the known MCP servers, as agents may rename them."""
    context = request_context(request)
    wish = (
        parse_access_request_or_none(request) if request.permission_type == ACCESS else None
    )  # else no input is loaded
    return build_request_terms(
        request.permission_type,
        tool=(wish.tool_name if wish else context.tool_name if context else None) or "",
        server=wish.server_id if wish else "",
        agents={request.plugin_id, context.agent_id if context else None, wish.agent_id if wish else None},
        host=(context.host if context else None) or "",
        known_names=servers,
    )


def build_request_terms(
    permission_type: str,
    *,
    tool: str,
    server: str,
    agents: Iterable[str | None],
    host: str,
    known_names: Iterable[str],
) -> RequestTerms:
    """Return the terms of a request with this text. `server` is the one that it names next to the tool, if any."""
    meant_tools = {(server, tool)} if server else set(find_server_tools_in_call_name(tool, known_names))
    calls = {
        f"{PREFIX}{name_in_calls(agent_id)}__{name_in_calls(name)}" for agent_id, name in meant_tools if name
    }
    return RequestTerms(
        permission_type,
        frozenset({tool, *calls} - {""}),
        frozenset(agent_id for agent_id, _ in meant_tools),
        frozenset(one for one in agents if one),
        host,
        frozenset(agent_id for agent_id, name in meant_tools if not name),
    )


def find_server_tools_in_call_name(call: str, known_names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Return the servers and tools that a call means: known ones, and as its own name has it.

    Not the latter where a known server's name goes on into what would be the tool: `mcp__a__b__run` means no `a` then.
    """
    if not call.startswith(PREFIX):
        return []
    called_tools = find_server_tools_meant_by_call(call, known_names)
    server, separator, tool = (unwrap_gateway_call_or_none(call) or call)[len(PREFIX) :].partition("__")
    is_own = (
        separator and server and tool and (not called_tools or any(name == tool for _, name in called_tools))
    )
    return [*called_tools, (server, tool)] if is_own else called_tools


def convert_deciding_rule(row: DecidingRule, number: int) -> DecidingRuleRow:
    """Return one saved row as it decides. People that cannot be read are nobody, not everybody."""
    term_texts = {name: str(getattr(row, name) or "") for name in TERMS}
    user_ids = {"groups": parse_user_ids(row.groups), "people": parse_user_ids(row.people)}
    return DecidingRuleRow(number, **term_texts, **user_ids, needed=1 if row.needed == 1 else 2)  # type: ignore[arg-type]


UNREADABLE = -1  # nobody has this id


def parse_user_ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        return (UNREADABLE,)
    return tuple(user_id if type(user_id) is int else UNREADABLE for user_id in value)


def require_valid_approver_rule(rule: DecidingRuleRow) -> None:
    """Raise UnprocessableRequest, in words for the person who wrote it, for a row that could not be followed."""
    for name in TERMS:
        value = getattr(rule, name)
        if len(value) > LONGEST_NAME or "\x00" in value:
            raise UnprocessableRequest(
                f"Row {rule.number}: a field may have at most {LONGEST_NAME} characters, without NUL."
            )
    if rule.needed not in (1, 2):
        raise UnprocessableRequest(f"Row {rule.number}: one or two people must approve.")


def deciding_rules_version(rules: Sequence[DecidingRuleRow]) -> str:
    """Return a short text that two lists of rows share exactly when they are the same."""
    packed = json.dumps([[getattr(rule, name) for name in DecidingRuleRow.__slots__] for rule in rules])
    return hashlib.sha256(packed.encode()).hexdigest()[:16]
