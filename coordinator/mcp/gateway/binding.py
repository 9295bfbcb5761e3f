"""The binding of an approval to one pending call: its caller, exact bytes, tool definition and policy."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from coordinator.identity.actors import Actor
from coordinator.mcp.servers.names import PREFIX, name_in_calls
from coordinator.policy.requests import policy_in_force
from coordinator.policy.requests.approvals import PermissionSubject
from coordinator.policy.requests.tool_calls import GATEWAY
from coordinator.policy.rules.call_text import build_call_text_from_input
from coordinator.policy.rules.tool_rules import TERM_FIELDS, DecisionRule, Ruling

PERMISSION = "ToolCall"


@dataclass(frozen=True, slots=True)
class CallBinding:
    """One call as it is judged. `arguments` is the decoded value of the bytes whose SHA-256 is `arguments_digest`."""

    by: Actor
    key_id: int
    agent_id: str
    server_id: str
    tool: str
    arguments: dict[str, Any] | None
    arguments_digest: str
    definition_digest: str
    policy_version: str
    is_read: bool = False  # no call of a tool: `tool` is the request's method, `arguments` are its params

    @property
    def tool_name(self) -> str:
        if self.is_read:
            return qualified_method_name(self.server_id, self.tool)
        return qualified_tool_name(self.server_id, self.tool)

    @property
    def approval_subject(self) -> PermissionSubject:
        """Return what a person judges. Any change makes it another question."""
        bound = (
            f"{self.tool} of {self.server_id} · arguments sha256:{self.arguments_digest} · "
            f"definition sha256:{self.definition_digest} · policy {self.policy_version}"
        )
        return PermissionSubject(GATEWAY, PERMISSION, bound, self.tool_name, self.arguments)

    @property
    def approval_question_digest(self) -> str:
        """Return the digest of the whole question and of who asks it."""
        return hashlib.sha256(
            f"{self.by}\n{self.agent_id}\n{self.approval_subject.subject_digest}".encode()
        ).hexdigest()


def qualified_tool_name(server_id: str, tool: str) -> str:
    """Return the name by which rules and timelines know a tool."""
    return f"{PREFIX}{name_in_calls(server_id)}__{name_in_calls(tool)}"


def qualified_method_name(server_id: str, method: str) -> str:
    """Return the name by which rules and timelines know a request other than a call: no tool's name has its slash."""
    return f"{PREFIX}{name_in_calls(server_id)}__{method}"


def hash_raw_call_arguments(raw: bytes) -> str:
    """Return the SHA-256 of the bytes of a call's arguments."""
    return hashlib.sha256(raw).hexdigest()


def hash_ruling_as_policy_version(ruling: Ruling) -> str:
    """Return a short text that is the same as long as the same rule or grant says the same.

    A rule's place in the list does not count: another rule above it that fits would decide instead.
    """
    ground: Any = policy_in_force.ruling_source_as_json(ruling)
    if isinstance(ruling.ground, DecisionRule):
        ground = {name: value for name, value in asdict(ruling.ground).items() if name != "number"}
        # A rule that says nothing in terms is the same as before there were any.
        ground = {name: value for name, value in ground.items() if value or name not in TERM_FIELDS}
    packed = json.dumps([ruling.decision, ground], sort_keys=True, default=str)
    return hashlib.sha256(packed.encode()).hexdigest()[:16]


def arguments_as_rule_text(arguments: Any) -> str:
    """Return what a call is about in one text, as rules look at it: its arguments as JSON."""
    return build_call_text_from_input(arguments or {}, None)
