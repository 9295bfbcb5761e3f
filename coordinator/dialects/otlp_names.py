"""The names under which emitters of telemetry send the same thing, as one table.

First the OpenTelemetry conventions for generative AI, in their forms of 2025 and 2026; then OpenInference, Traceloop
(OpenLLMetry), the Vercel AI SDK, Pydantic AI, and Claude Code's own. Names of one row mean the same.
"""

from __future__ import annotations

import re

from coordinator.dialects.otlp_records import OUTPUT_TOKENS, TelemetryRecord

CONVERSATION = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "conversation.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "traceloop.association.properties.conversation_id",
    "ai.telemetry.metadata.sessionId",
    "langsmith.metadata.session_id",
    "langsmith.metadata.thread_id",
    "langsmith.metadata.conversation_id",
    "gcp.vertex.agent.session_id",
)
AGENT_NAME = (
    "gen_ai.agent.name", "agent.name", "ai.telemetry.functionId", "langsmith.metadata.lc_agent_name",
)  # fmt: skip
TOOL_NAME = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
TOOL_CALL_ID = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id")
UNKNOWN_CALL_IDS = frozenset({"<not specified>", "None"})  # what Google ADK sends where a call has failed
TOOL_INPUT = (
    "gen_ai.tool.call.arguments",
    "ai.toolCall.args",
    "gcp.vertex.agent.tool_call_args",
    "input.value",
    "traceloop.entity.input",
    "gen_ai.prompt",
)
TOOL_OUTPUT = (
    "gen_ai.tool.call.result",
    "ai.toolCall.result",
    "gcp.vertex.agent.tool_response",
    "output.value",
    "traceloop.entity.output",
    "gen_ai.completion",
)

MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})
AGENT_OPERATIONS = frozenset({"invoke_agent", "invoke_workflow"})
# Of these nothing is written but that their spans end: they hold others.
CONTAINERS = frozenset(
    {
        *("create_agent", "plan", "retrieval", "embeddings", "chain", "execute_event_loop_cycle", "call_llm"),
        *("AGENT", "CHAIN", "RETRIEVER", "EMBEDDING", "RERANKER", "GUARDRAIL", "EVALUATOR", "PROMPT"),
        *("workflow", "agent", "task"),
    }
)
VERCEL_MODEL_CALLS = (".doGenerate", ".doStream")
VERCEL_TOOL_CALL = "ai.toolCall"
VERCEL_OUTER = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")
# Libraries that trace the requests of a provider's client: nobody else traces the calls that their answers ask for.
MODEL_CLIENT_SCOPE = re.compile(
    r"(?:^|[./_-])(?:openai|openai_v2|anthropic|bedrock|botocore|google_generativeai|google_genai|vertexai"
    r"|mistralai|groq|cohere|ollama|litellm|together|replicate|watsonx|sagemaker)(?:\.v\d)?$"
)
# Attributes by which a span is known to be about an agent or a model, from any emitter.
OF_AI = ("gen_ai.", "llm.", "ai.", "openinference.", "traceloop.", "langsmith.")


def classify_span_role(span: TelemetryRecord) -> str | None:
    """Return what a span is of: `model`, `tool`, `agent` (it holds others), or None for none of these."""
    operation = span.first_text_attribute("gen_ai.operation.name")
    kind = span.first_text_attribute("openinference.span.kind", "traceloop.span.kind")
    vercel = vercel_operation_name_or_empty(span)
    if operation == "execute_tool" or kind in {"TOOL", "tool"} or vercel == VERCEL_TOOL_CALL:
        return "tool"
    if (
        operation in MODEL_OPERATIONS
        or kind == "LLM"
        or span.first_text_attribute("llm.request.type") in {"chat", "completion"}
        or vercel.endswith(VERCEL_MODEL_CALLS)
        or (vercel in VERCEL_OUTER and span.first_integer_attribute(*OUTPUT_TOKENS) is not None)
    ):
        return "model"
    is_container = operation in AGENT_OPERATIONS | CONTAINERS or kind in CONTAINERS or vercel in VERCEL_OUTER
    return "agent" if is_container else None


def vercel_operation_name_or_empty(span: TelemetryRecord) -> str:
    """Return the operation of the Vercel AI SDK that a span is of; an empty text for another's span."""
    named = span.first_text_attribute("operation.name") or ""
    return span.first_text_attribute("ai.operationId") or named.split(" ")[0]


def is_agent_span(span: TelemetryRecord) -> bool:
    """Say whether a span holds all that an agent does for one prompt, or a part of it."""
    return classify_span_role(span) == "agent" or vercel_operation_name_or_empty(span) in VERCEL_OUTER


def is_model_client_span(span: TelemetryRecord) -> bool:
    """Say whether a request to a model was traced in the provider's client, below any framework of agents."""
    return MODEL_CLIENT_SCOPE.search(span.scope) is not None


def is_ai_span(span: TelemetryRecord) -> bool:
    """Say whether a span is about an agent or a model at all."""
    return any(name.startswith(OF_AI) for name in span.attributes)
