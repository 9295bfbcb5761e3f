"""What a permission request is about, as a headline: "Run git push origin main in shop"."""

from __future__ import annotations

from dataclasses import replace

from coordinator.calls.call_headlines import CallAct, describe_call_act, shorten_subject
from coordinator.models import PermissionRequest
from coordinator.policy.grants.access_requests import parse_access_request
from coordinator.policy.requests import approvals, question_requests
from coordinator.policy.requests.gateway_requests import gateway_request_gist
from coordinator.policy.requests.questions import (
    Asked,
    AskedOptions,
    AskedPlan,
    AskedQuestions,
    is_question_tool,
)

RequestAct = CallAct
# What a server wants of the agent's own program. No tool is named so in calls: their names hold no slash there.
SERVER_ACTS = {"sampling/createMessage": "ask the agent's model", "roots/list": "see the agent's folders"}
LONGEST_TARGET = 80  # characters of a target behind the headline of a call


def describe_asked(question: Asked) -> RequestAct:
    """Return the headline of a question or a plan."""
    if isinstance(question, AskedPlan) or (isinstance(question, AskedOptions) and question.plan):
        return CallAct("Review a plan")
    count = len(question.questions) if isinstance(question, AskedQuestions) else 1
    if count == 0:
        return CallAct("Answer a confirmation")
    return CallAct("Answer a question" if count == 1 else f"Answer {count} questions")


def describe_gateway_act(gist: str, tool: str) -> RequestAct:
    method, _, server = gist.partition(" of ")
    if method in SERVER_ACTS and tool.endswith(f"__{method}"):
        return CallAct("Let", shorten_subject(server), SERVER_ACTS[method])
    return CallAct("Call", shorten_subject(gist))


def describe_request_act(request: PermissionRequest) -> RequestAct:
    """Return the headline of what `request` asks for."""
    context, target = approvals.request_context(request), request.target_resource or ""
    tool = (context and context.tool_name) or ""
    if is_question_tool(tool) and (question := question_requests.find_asked(request)) is not None:
        return describe_asked(question)
    if (gist := gateway_request_gist(request)) is not None:
        return describe_gateway_act(gist, tool)
    if parse_access_request(request) is not None:
        return CallAct("Grant", shorten_subject(request.plugin_id), f"access to {shorten_subject(target)}")
    if context is None or not tool:
        kind = shorten_subject(request.permission_type)
        return CallAct("Allow", shorten_subject(target), f"({kind})") if target else CallAct("Allow", kind)
    act = describe_call_act(tool, approvals.load_listed_input(request), context.folder)
    if act.whole_field or not target or target in act.text or len(target) > LONGEST_TARGET:
        return act
    return replace(act, rest=f"{act.rest} ({shorten_subject(target)})".strip())
