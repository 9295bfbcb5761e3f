"""Headlines of permission requests: "Run git push origin main in shop"."""

from __future__ import annotations

from dataclasses import replace

from coordinator.calls.call_headlines import CallHeadline, build_call_headline_parts, shorten_headline_subject
from coordinator.models import PermissionRequest
from coordinator.policy.grants.access_requests import parse_access_request_or_none
from coordinator.policy.requests import approvals, question_requests
from coordinator.policy.requests.gateway_requests import gateway_request_call_label
from coordinator.policy.requests.questions import (
    AgentQuestions,
    OptionsQuestion,
    PersonQuestion,
    PlanReview,
    is_question_tool,
)

RequestAct = CallHeadline
# What a server wants of the agent's own program. No tool is named so in calls: their names hold no slash there.
SERVER_ACTS = {"sampling/createMessage": "ask the agent's model", "roots/list": "see the agent's folders"}
LONGEST_TARGET = 80  # characters of a target behind the headline of a call


def build_question_headline_parts(question: PersonQuestion) -> RequestAct:
    """Return the headline of a question or a plan."""
    if isinstance(question, PlanReview) or (isinstance(question, OptionsQuestion) and question.plan):
        return CallHeadline("Review a plan")
    count = len(question.questions) if isinstance(question, AgentQuestions) else 1
    if count == 0:
        return CallHeadline("Answer a confirmation")
    return CallHeadline("Answer a question" if count == 1 else f"Answer {count} questions")


def build_gateway_headline_parts(gist: str, tool: str) -> RequestAct:
    method, _, server = gist.partition(" of ")
    if method in SERVER_ACTS and tool.endswith(f"__{method}"):
        return CallHeadline("Let", shorten_headline_subject(server), SERVER_ACTS[method])
    return CallHeadline("Call", shorten_headline_subject(gist))


def build_permission_request_headline(request: PermissionRequest) -> RequestAct:
    """Return the headline of what `request` asks for."""
    context, target = approvals.request_context(request), request.target_resource or ""
    tool = (context and context.tool_name) or ""
    if (
        is_question_tool(tool)
        and (question := question_requests.parse_request_question_or_none(request)) is not None
    ):
        return build_question_headline_parts(question)
    if (gist := gateway_request_call_label(request)) is not None:
        return build_gateway_headline_parts(gist, tool)
    if parse_access_request_or_none(request) is not None:
        return CallHeadline(
            "Grant",
            shorten_headline_subject(request.plugin_id),
            f"access to {shorten_headline_subject(target)}",
        )
    if context is None or not tool:
        kind = shorten_headline_subject(request.permission_type)
        return (
            CallHeadline("Allow", shorten_headline_subject(target), f"({kind})")
            if target
            else CallHeadline("Allow", kind)
        )
    act = build_call_headline_parts(tool, approvals.already_loaded_tool_input(request), context.folder)
    if act.whole_field or not target or target in act.text or len(target) > LONGEST_TARGET:
        return act
    return replace(act, rest=f"{act.rest} ({shorten_headline_subject(target)})".strip())
