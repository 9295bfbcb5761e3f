"""The names under which emitters of telemetry send the same thing, as one table.

First the OpenTelemetry conventions for generative AI, in their forms of 2025 and 2026; then OpenInference, Traceloop
(OpenLLMetry), the Vercel AI SDK, Pydantic AI, and Claude Code's own. Names of one row mean the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.dialects.hooks import parse_embedded_json
from coordinator.dialects.otlp_records import OUTPUT_TOKENS, TelemetryRecord

CONVERSATION = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "conversation.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "ai.telemetry.metadata.sessionId",
)
AGENT_NAME = ("gen_ai.agent.name", "agent.name", "ai.telemetry.functionId")
TOOL_NAME = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
TOOL_CALL_ID = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id")
TOOL_INPUT = ("gen_ai.tool.call.arguments", "ai.toolCall.args", "input.value", "traceloop.entity.input")
TOOL_OUTPUT = ("gen_ai.tool.call.result", "ai.toolCall.result", "output.value", "traceloop.entity.output")

MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})
AGENT_OPERATIONS = frozenset({"invoke_agent", "invoke_workflow"})
# Of these nothing is written but that their spans end: they hold others.
CONTAINERS = frozenset(
    {"create_agent", "plan", "retrieval", "embeddings", "AGENT", "CHAIN", "workflow", "agent", "task"}
)
VERCEL_MODEL_CALLS = (".doGenerate", ".doStream")
VERCEL_TOOL_CALL = "ai.toolCall"
VERCEL_OUTER = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")
# Attributes by which a span is known to be about an agent or a model, whoever sent it.
OF_AI = ("gen_ai.", "llm.", "ai.", "openinference.", "traceloop.")


def span_role(span: TelemetryRecord) -> str | None:
    """Return what a span is of: `model`, `tool`, `agent` (it holds others), or None for none of these."""
    operation = span.text_attribute("gen_ai.operation.name")
    kind = span.text_attribute("openinference.span.kind", "traceloop.span.kind")
    vercel = (
        span.text_attribute("ai.operationId") or (span.text_attribute("operation.name") or "").split(" ")[0]
    )
    if operation == "execute_tool" or kind in {"TOOL", "tool"} or vercel == VERCEL_TOOL_CALL:
        return "tool"
    if (
        operation in MODEL_OPERATIONS
        or kind == "LLM"
        or span.text_attribute("llm.request.type") in {"chat", "completion"}
        or vercel.endswith(VERCEL_MODEL_CALLS)
        or (vercel in VERCEL_OUTER and span.number_attribute(*OUTPUT_TOKENS) is not None)
    ):
        return "model"
    is_container = operation in AGENT_OPERATIONS | CONTAINERS or kind in CONTAINERS or vercel in VERCEL_OUTER
    return "agent" if is_container else None


def is_about_ai(span: TelemetryRecord) -> bool:
    """Say whether a span is about an agent or a model at all."""
    return any(name.startswith(OF_AI) for name in span.attributes)


# --- messages ---------------------------------------------------------------------------------------------------


def read_span_texts(span: TelemetryRecord) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what was said to a model, as roles and texts in order, and what it answered."""
    attributes = span.attributes
    prompt_parts = [
        *json_messages(attributes.get("gen_ai.input.messages")),
        *json_messages(attributes.get("ai.prompt.messages")),
        *vercel_prompt(attributes.get("ai.prompt")),
        *numbered_messages(attributes, "llm.input_messages", "message."),
        *numbered_messages(attributes, "gen_ai.prompt", ""),
    ]
    answered = [
        *json_messages(attributes.get("gen_ai.output.messages")),
        *numbered_messages(attributes, "llm.output_messages", "message."),
        *numbered_messages(attributes, "gen_ai.completion", ""),
    ]
    texts = [text for _, text in answered]
    if not texts and (answer_text := span.text_attribute("ai.response.text", "ai.result.text")):
        texts = [answer_text]
    return prompt_parts, texts


MOST_MESSAGES = 1_000  # of one span, told under numbers


def numbered_messages(attributes: dict[str, Any], prefix: str, inner: str) -> Iterator[tuple[str, str]]:
    """Yield messages whose parts are attributes of their own: `gen_ai.prompt.0.role`, `gen_ai.prompt.0.content`."""
    for number in range(MOST_MESSAGES):
        role = attributes.get(f"{prefix}.{number}.{inner}role")
        content = attributes.get(f"{prefix}.{number}.{inner}content")
        if role is None and content is None:
            return
        if content is None:
            content = attributes.get(f"{prefix}.{number}.{inner}contents.0.message_content.text")
        if isinstance(content, str) and content.strip():
            yield str(role), content


def json_messages(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the messages of a list, or of a text that holds one in JSON."""
    messages = parse_embedded_json(value)
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict) and (text := message_text(message)):
            yield str(message.get("role")), text


def vercel_prompt(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the messages of the Vercel AI SDK's `ai.prompt`: a prompt, or messages."""
    prompt = parse_embedded_json(value)
    if isinstance(prompt, dict):
        if isinstance(text := prompt.get("prompt"), str) and text.strip():
            yield "user", text
        yield from json_messages(prompt.get("messages"))


def message_text(message: dict[str, Any]) -> str:
    """Return the words of a message, whatever its parts are called."""
    parts = message.get("parts", message.get("content"))
    if isinstance(parts, str):
        return parts
    texts = [
        part.get("content", part.get("text"))
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, dict) and part.get("type") == "text"
    ]
    return "\n\n".join(text for text in texts if isinstance(text, str))
