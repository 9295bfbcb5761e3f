"""Permission requests that are questions, and what each asks: see `questions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coordinator.models import PermissionRequest
from coordinator.policy.requests.agent_options import (
    has_ambiguous_options,
    is_driven_agent_request,
    parse_agent_answer_options,
)
from coordinator.policy.requests.approvals import request_subject
from coordinator.policy.requests.questions import (
    ELICITATION,
    PLAN_TOOLS,
    AddressRequest,
    AgentOption,
    OptionsQuestion,
    PersonQuestion,
    PlanMode,
    PlanReview,
    is_question_tool,
    parse_call_question_or_none,
)
from coordinator.policy.requests.tool_calls import GATEWAY
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.secrets.sealing import seal_for_purpose, unseal_for_purpose
from coordinator.sessions.agent_programs import AGENT_TITLES

ADDRESS = "sealed_address"  # in a request's metadata
ADDRESS_SEALED_AS = "elicitation-address"
MODE_HOOKS = frozenset({"PermissionRequest"})  # Claude Code's: its answer can also set the mode
REPEATING_HOOKS = frozenset({"BeforeTool"})  # Gemini CLI's: its own settings ask about plans in any case


def parse_request_question_or_none(request: PermissionRequest) -> PersonQuestion | None:
    """Return what a request asks a person; None where it is to be approved or denied as any other.

    Only requests that a hook, a runner or the gateway made count: nobody else would receive the answer.
    """
    metadata = request.metadata if isinstance(request.metadata, dict) else {}
    hook = metadata.get("hook")
    if not isinstance(hook, str):
        return None
    subject = request_subject(request)
    tool = subject.tool_name or ""
    if is_driven_agent_request(request) and tool != ELICITATION:
        return build_options_question_or_none(metadata, tool, subject.tool_input)
    if not is_question_tool(tool) or not (
        request.plugin_id in {*AGENT_TITLES, GATEWAY} or is_driven_agent_request(request)
    ):
        return None
    question = parse_call_question_or_none(tool, subject.tool_input)
    if isinstance(question, AddressRequest):
        return replace(question, link=unseal_elicitation_address_or_empty(metadata) or question.address)
    if isinstance(question, PlanReview):
        modes = tuple(PlanMode) if hook in MODE_HOOKS else ()
        repeating_agent = AGENT_TITLES.get(request.plugin_id, "") if hook in REPEATING_HOOKS else ""
        return replace(question, modes=modes, repeating_agent=repeating_agent)
    return question


def build_sealed_address_metadata(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the sealed address of a server, kept next to its masked form; empty where nothing is masked."""
    address = params.get("url")
    if not isinstance(address, str) or mask_secrets_in_value(address, judged=True) == address:
        return {}
    return {ADDRESS: seal_for_purpose(ADDRESS_SEALED_AS, address.encode()).decode()}


def unseal_elicitation_address_or_empty(metadata: Mapping[str, Any]) -> str:
    """Return the address that `build_sealed_address_metadata` kept; nothing where there is none that can be opened."""
    try:
        return unseal_for_purpose(ADDRESS_SEALED_AS, str(metadata.get(ADDRESS, "")).encode()).decode()
    except ValueError:
        return ""


def build_options_question_or_none(
    metadata: Mapping[str, Any], tool: str, tool_input: Any
) -> OptionsQuestion | None:
    """Return the options of a driven agent's question where one must be chosen by name; those of plans always are."""
    options = parse_agent_answer_options(metadata.get("options"))
    plan = parse_call_question_or_none(tool, tool_input) if tool in PLAN_TOOLS else None
    if not options or (plan is None and not has_ambiguous_options(options)):
        return None
    offered = tuple(
        AgentOption(
            option["optionId"],
            option["name"],
            allows=not option["kind"].startswith("reject"),
            lasts=option["kind"].endswith("_always"),
        )
        for option in options
    )
    return OptionsQuestion(offered, plan.text if isinstance(plan, PlanReview) else "")


def is_question_request(request: PermissionRequest) -> bool:
    """Say whether a request is answered: it is not approved with others, for longer, or by a rule."""
    return parse_request_question_or_none(request) is not None
