"""The messages to and from a model, read from one span or log record, whatever its emitter calls the parts.

Emitters put messages into attributes (as JSON, or one attribute for each part), into events of a span, or into log
records of their own. All become the same list of parts: texts, calls of tools, and results of calls. The shapes are
those of the OpenTelemetry conventions of 2025 and 2026, OpenInference, Traceloop, the Vercel AI SDK, LangChain and
LangSmith, and of the providers' own messages (OpenAI, Anthropic, Bedrock, Gemini).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from coordinator.dialects.hooks import parse_embedded_json
from coordinator.dialects.otlp_records import TelemetryRecord

MAX_MESSAGES = 1_000  # of one record; the last ones are read
MAX_PARTS = 1_000  # of one message
MAX_KEY_SEGMENTS = 12  # of an attribute that is one part of a message: the deepest in use has nine
MAX_WRAPPERS = 4  # around a message or a list of them

MESSAGES_TO_MODEL = (
    "gen_ai.input.messages",
    "ai.prompt.messages",
    "ai.prompt",
    "gen_ai.prompt",
    "gcp.vertex.agent.llm_request",
)
MESSAGES_OF_MODEL = ("gen_ai.output.messages", "gen_ai.completion", "gcp.vertex.agent.llm_response")
# Messages whose parts are attributes of their own: `gen_ai.prompt.0.role`, `gen_ai.prompt.0.content`.
NUMBERED_TO_MODEL = ("llm.input_messages", "gen_ai.prompt")
NUMBERED_OF_MODEL = ("llm.output_messages", "gen_ai.completion")
TEXTS_OF_MODEL = ("ai.response.text", "ai.result.text")
CALLS_OF_MODEL = ("ai.response.toolCalls", "ai.result.toolCalls")
# Events of a span, or log records, that are one message each: by the role of who said it.
MESSAGE_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
ANSWER_EVENT = "gen_ai.choice"
DETAILS_EVENT = "gen_ai.client.inference.operation.details"  # holds the attributes of the conventions of 2026

# What may be put around a list of messages, and around one of them.
LIST_WRAPPERS = (
    "messages", "generations", "choices", "output", "input", "contents", "prompt", "candidates",
)  # fmt: skip
MESSAGE_WRAPPERS = ("kwargs", "data", "message", "message_content", "tool_call")
ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
# The kinds of a part by its `type`, and by the field that holds it where it has none.
CALL, RESULT, TEXT = "call", "result", "text"
KIND_BY_TYPE = {
    **dict.fromkeys(("text", "input_text", "output_text"), TEXT),
    **dict.fromkeys(("tool_call", "tool-call", "tool_use", "function_call", "function"), CALL),
    **dict.fromkeys(
        ("tool_call_response", "tool-result", "tool_result", "function_call_output", "tool_result_block"),
        RESULT,
    ),
}
KIND_BY_FIELD = {
    "toolUse": CALL,
    "functionCall": CALL,
    "function_call": CALL,
    "toolResult": RESULT,
    "functionResponse": RESULT,
    "function_response": RESULT,
}
VERCEL_RESULT_TYPES = frozenset({"text", "json", "error-text", "error-json"})
CALL_ID_FIELDS = ("call_id", "tool_call_id", "tool_use_id", "toolUseId", "toolCallId", "id")
CALL_NAME_FIELDS = ("name", "toolName")
CALL_INPUT_FIELDS = ("arguments", "args", "input")
CALL_OUTPUT_FIELDS = ("response", "result", "output", "content")


@dataclass(frozen=True, slots=True)
class SpokenPart:
    """A part of a message to a model or by it: a text, a call of a tool, or the result of a call.

    `call_id` pairs a result with its call, where the emitter says it. `value` is a call's arguments or a result.
    """

    role: str
    kind: str  # TEXT, CALL or RESULT
    text: str = ""
    call_id: str = ""
    tool_name: str = ""
    value: Any = None


def read_messages_to_model(record: TelemetryRecord) -> list[SpokenPart]:
    """Return the parts of what was said to a model in this record, in order."""
    for messages in iterate_message_lists(record, MESSAGES_TO_MODEL, NUMBERED_TO_MODEL):
        if parts := list(iterate_parts_of_messages(messages, "user")):
            return parts
    parts = []
    for name, fields in record.events:
        if (role := MESSAGE_EVENTS.get(name)) is not None:
            parts += iterate_parts_of_message({"role": role, **decode_span_event_fields(fields)}, role)
    if not parts and record.first_text_attribute("openinference.span.kind") == "LLM":
        messages = parse_embedded_json(record.attributes.get("input.value"))
        parts = list(iterate_parts_of_messages(messages, "user")) if not isinstance(messages, str) else []
    return parts


def read_model_answer_parts(record: TelemetryRecord) -> list[SpokenPart]:
    """Return the parts of what a model answered in this record, in order."""
    for messages in iterate_message_lists(record, MESSAGES_OF_MODEL, NUMBERED_OF_MODEL):
        if parts := list(iterate_parts_of_messages(messages, "assistant")):
            return parts
    parts = []
    for name, fields in record.events:
        if name == ANSWER_EVENT:
            parts += iterate_parts_of_message(decode_span_event_fields(fields), "assistant")
    if not parts:
        if text := record.first_text_attribute(*TEXTS_OF_MODEL):
            parts.append(SpokenPart("assistant", TEXT, text))
        for name in CALLS_OF_MODEL:
            calls = parse_embedded_json(record.attributes.get(name))
            for call in islice(calls, MAX_PARTS) if isinstance(calls, list) else ():
                parts += iterate_parsed_part_if_readable(
                    {"type": "tool-call", **call} if isinstance(call, dict) else call, "assistant"
                )
    return parts


def read_tool_span_input_and_output(record: TelemetryRecord) -> tuple[Any, Any]:
    """Return the input and the output of a tool's span that has them in its events, as Strands does."""
    tool_input = tool_output = None
    for name, fields in record.events:
        if name == "gen_ai.tool.message":
            tool_input = parse_embedded_json(fields.get("content"))
        elif name == ANSWER_EVENT:
            tool_output = unwrap_tool_result(
                parse_embedded_json(fields.get("message", fields.get("content")))
            )
    return tool_input, tool_output


def trailing_user_text(parts: Iterable[SpokenPart]) -> str:
    """Return the text of the last message to a model, if a person wrote it; results of tools are nobody's words."""
    texts: list[str] = []
    for part in reversed(list(parts)):
        if part.role != "user" or part.kind != TEXT:
            break
        texts.append(part.text)
    return "\n\n".join(reversed(texts))


# --- lists of messages ------------------------------------------------------------------------------------


def iterate_message_lists(
    record: TelemetryRecord, names: Iterable[str], numbered: Iterable[str]
) -> Iterator[Any]:
    """Yield each of the lists of messages that a record's attributes, and those of its events, hold."""
    details = (fields for name, fields in record.events if name == DETAILS_EVENT)
    for attributes in (record.attributes, *details):
        for name in names:
            if (value := attributes.get(name)) is not None:
                yield parse_embedded_json(value)
    for prefix in numbered:
        if messages := collect_numbered_messages(record.attributes, prefix):
            yield messages


def collect_numbered_messages(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """Return the messages below a prefix; emitters may leave numbers out."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(f"{prefix}."):
            continue
        *path, last = name[len(prefix) + 1 :].split(".", MAX_KEY_SEGMENTS)
        branch = tree
        for segment in path:
            inner = branch.setdefault(segment, {})
            if not isinstance(inner, dict):
                break
            branch = inner
        else:
            branch[last] = value
    messages = convert_numbered_branches_to_lists(tree)
    return messages if isinstance(messages, list) else []


def convert_numbered_branches_to_lists(branch: Any) -> Any:
    """Return a branch whose names are all numbers as a list in their order, and the branches in it likewise."""
    if not isinstance(branch, dict):
        return branch
    opened = {name: convert_numbered_branches_to_lists(inner) for name, inner in branch.items()}
    if opened and all(name.isdecimal() and len(name) < 10 for name in opened):
        return [opened[name] for name in sorted(opened, key=int)]
    return opened


def iterate_parts_of_messages(messages: Any, role: str) -> Iterator[SpokenPart]:
    """Yield the parts of messages without what is put around them; of `role` where they name none."""
    for _ in range(MAX_WRAPPERS):
        if isinstance(messages, dict) and "role" not in messages:
            inner = next((messages[name] for name in LIST_WRAPPERS if name in messages), None)
            if inner is None and isinstance(messages.get("content"), dict):
                inner = messages["content"]  # Gemini's answer
            if inner is None:
                break
            messages = inner
        elif isinstance(messages, list) and len(messages) == 1 and isinstance(messages[0], list):
            messages = messages[0]
        else:
            break
    if isinstance(messages, str | dict):
        messages = [messages]
    for message in messages[-MAX_MESSAGES:] if isinstance(messages, list) else ():
        yield from iterate_parts_of_message(message, role)


def iterate_parts_of_message(message: Any, role: str) -> Iterator[SpokenPart]:
    """Yield the parts of one message; of texts only those that say something."""
    if isinstance(message, str):
        message = {"role": role, "content": message}
    message = unwrap_provider_message(message)
    if not isinstance(message, dict):
        return
    if KIND_BY_TYPE.get(str(message.get("type"))) in {CALL, RESULT}:  # an item of OpenAI's Responses API
        yield from iterate_parsed_part_if_readable(message, role)
        return
    role = str(message.get("role") or message.get("type") or role)
    role = ROLES.get(role, role)
    content = message.get("parts", message.get("content", message.get("contents")))
    if role == "tool" and (message.get("tool_call_id") or isinstance(content, str)):
        result = {"type": "tool_result", "content": content}
        yield from iterate_parsed_part_if_readable(
            {**message, **result, "id": message.get("tool_call_id") or message.get("id")}, role
        )
        return
    for part in islice(content, MAX_PARTS) if isinstance(content, list) else (content,):
        yield from iterate_parsed_part_if_readable(part, role)
    calls = message.get("tool_calls")
    for call in islice(calls, MAX_PARTS) if isinstance(calls, list) else ():
        unwrapped = unwrap_provider_message(call)
        if isinstance(unwrapped, dict):
            yield from iterate_parsed_part_if_readable({**unwrapped, "type": "tool_call"}, role)


def decode_span_event_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a span's event, in which content may be JSON in a text."""
    return {name: parse_embedded_json(value) if name in {"content", "message", "tool_calls"} else value
            for name, value in fields.items()}  # fmt: skip


def unwrap_provider_message(message: Any) -> Any:
    """Return a message without what LangChain, OpenInference and OpenAI's choices put around it."""
    for _ in range(MAX_WRAPPERS):
        if not isinstance(message, dict):
            break
        inner = next(
            (message[name] for name in MESSAGE_WRAPPERS if isinstance(message.get(name), dict)), None
        )
        if inner is None:
            if isinstance(message.get("message"), list):  # Strands: an event's message is a list of parts
                message = {"role": message.get("role"), "content": message["message"]}
            break
        message = inner if "type" in inner or "type" not in message else {"type": message["type"], **inner}
    return message


# --- parts ------------------------------------------------------------------------------------------------


def iterate_parsed_part_if_readable(part: Any, role: str) -> Iterator[SpokenPart]:
    """Yield a part of a message, if it is one of those that are read."""
    if isinstance(part, str):
        part = {"type": "text", "text": part}
    part = unwrap_provider_message(part)
    if not isinstance(part, dict):
        return
    kind = KIND_BY_TYPE.get(str(part.get("type"))) if "type" in part else None
    for name, field_kind in KIND_BY_FIELD.items():
        if isinstance(part.get(name), dict):
            part, kind = part[name], field_kind
            break
    if kind is None and "type" not in part and isinstance(part.get("text", part.get("content")), str):
        kind = TEXT
    if kind == TEXT:
        text = part.get("content", part.get("text"))
        if isinstance(text, str) and text.strip():
            yield SpokenPart(role, TEXT, text)
    elif kind is not None:
        function = part["function"] if isinstance(part.get("function"), dict) else part
        call_id = str(first_present_field(part, CALL_ID_FIELDS) or "")
        tool_name = str(first_present_field(function, CALL_NAME_FIELDS) or "")
        if kind == CALL:
            value = parse_embedded_json(first_present_field(function, CALL_INPUT_FIELDS))
            yield SpokenPart(role, CALL, call_id=call_id, tool_name=tool_name, value=value)
        else:
            value = unwrap_tool_result(first_present_field(part, CALL_OUTPUT_FIELDS))
            yield SpokenPart("tool", RESULT, call_id=call_id, tool_name=tool_name, value=value)


def first_present_field(holder: dict[str, Any], names: Iterable[str]) -> Any:
    return next((holder[name] for name in names if holder.get(name) is not None), None)


def unwrap_tool_result(value: Any) -> Any:
    """Return the result of a tool without what is put around it: its text, where it is a list of texts."""
    value = parse_embedded_json(value)
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        value = parse_embedded_json(f"[{value}]")  # the Vercel AI SDK: a text as JSON
        return value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(value, dict) and list(value) == ["output"]:
        value = value["output"]  # LangSmith
    if isinstance(value, dict) and value.get("type") in VERCEL_RESULT_TYPES and "value" in value:
        return value["value"]  # the Vercel AI SDK
    message = unwrap_provider_message(value)
    if isinstance(message, dict) and message.get("type") == "tool" and "content" in message:
        value = message["content"]  # LangChain
    if isinstance(value, list) and value:
        parts = [
            part
            for item in islice(value, MAX_PARTS)
            for part in iterate_parsed_part_if_readable(item, "tool")
        ]
        if len(parts) == len(value) and all(part.kind == TEXT for part in parts):
            return "\n\n".join(part.text for part in parts)
    return value
