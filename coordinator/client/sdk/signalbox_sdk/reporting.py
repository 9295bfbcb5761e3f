"""Report what a program says, calls and uses, as telemetry (OTLP over HTTP), into the session of its conversation.

What is reported again under the same `key` is recorded once, so a program that starts again may report all of it again.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from signalbox_sdk.connection import Connection

PATH = "/v1/traces"


def session(
    conversation: str, *, agent: str | None = None, connection: Connection | None = None
) -> ReportedSession:
    """Return the session of a conversation, to which questions with the same `conversation` belong."""
    return ReportedSession(conversation, agent, connection or Connection())


@dataclass(frozen=True)
class ReportedSession:
    """A session that a program reports. Each method sends one report, and raises where the server did not take it.

    The methods raise ServerUnavailable or RequestRefused.
    """

    conversation: str
    agent: str | None = None
    connection: Connection = field(default_factory=Connection)

    def report_model_request(
        self,
        model: str,
        *,
        prompt: str = "",
        answer: str = "",
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        key: str | None = None,
    ) -> None:
        """Report a request to a model: what was said, and the tokens that it used (`input_tokens` with cached ones)."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": input_tokens,
            "gen_ai.usage.output_tokens": output_tokens,
            "gen_ai.usage.cache_read.input_tokens": cache_read_tokens,
        }
        for name, role, text in (("input", "user", prompt), ("output", "assistant", answer)):
            if text:
                message = {"role": role, "parts": [{"type": "text", "content": text}]}
                attributes[f"gen_ai.{name}.messages"] = json.dumps([message])
        self._send_span(f"chat {model}", attributes, key)

    def report_tool_call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        result: Any = None,
        *,
        error: str | None = None,
        key: str | None = None,
    ) -> None:
        """Report a call that has ended."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": key or uuid.uuid4().hex,
            "gen_ai.tool.call.arguments": json.dumps(dict(arguments)),
            "gen_ai.tool.call.result": json.dumps(result),
        }
        self._send_span(f"execute_tool {tool}", attributes, key, error)

    def _send_span(
        self, name: str, attributes: dict[str, Any], key: str | None, error: str | None = None
    ) -> None:
        digest = hashlib.sha256(
            f"{self.conversation}\n{name}\n{key or uuid.uuid4().hex}".encode()
        ).hexdigest()
        attributes["gen_ai.conversation.id"] = self.conversation
        if self.agent:
            attributes["gen_ai.agent.name"] = self.agent
        now = str(time.time_ns())
        span: dict[str, Any] = {
            "traceId": digest[:32],
            "spanId": digest[32:48],
            "name": name,
            "startTimeUnixNano": now,
            "endTimeUnixNano": now,
            "attributes": [
                {"key": attribute, "value": encode_attribute(value)}
                for attribute, value in attributes.items()
            ],
        }
        if error is not None:
            span["status"] = {"code": 2, "message": error}
        self.connection.send("POST", PATH, {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})


def encode_attribute(value: Any) -> dict[str, Any]:
    """Return an attribute's value as OTLP's JSON writes it."""
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}
