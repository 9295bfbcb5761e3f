"""Agents, speakers and messages for tests of chats, and the recorded cases."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from PIL import Image

from coordinator.actions.chat import chat
from coordinator.actions.chat.chat import ChatSpeaker, ChatUpload
from coordinator.identity.actors import Actor
from coordinator.models import Agent, ChatMessage

NOW = datetime(2026, 2, 23, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CASES: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "conformance" / "chat.json").read_text()
)
ANNA = ChatSpeaker("user", "anna", Actor("user", "anna"))
ROBOT = ChatSpeaker("agent", "anna", Actor("key", "robot"))


def case(group: str, case_id: str) -> dict[str, Any]:
    """Return one recorded case."""
    return next(one for one in CASES[group] if one["id"] == case_id)


def add_agent(agent_id: str = "agent.robot", **values: Any) -> Agent:
    return Agent.objects.create(
        id=agent_id, name=agent_id.removeprefix("agent."), default_engine_id="mind.x", **values
    )


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


def say(words: str, agent_id: str = "agent.robot", *, by: ChatSpeaker = ANNA, **values: Any) -> ChatMessage:
    return chat.submit_chat_message(agent_id, text(words), speaker=by, **{"now": NOW, **values})


def add_messages(count: int, agent_id: str = "agent.robot") -> None:
    """Add messages at 1, 2, 3 … ms of 1970, as the cases count them."""
    ChatMessage.objects.bulk_create(
        ChatMessage(
            id=f"m{number:06}",
            agent_id=agent_id,
            user_id="anna",
            source="user",
            content=text(f"number {number}"),
            created_at=EPOCH + timedelta(milliseconds=number),
        )
        for number in range(1, count + 1)
    )


def png(size: tuple[int, int] = (40, 30), *, padded_to: int = 0) -> bytes:
    """Return a real PNG, with bytes behind its end where it must have a certain size."""
    file = io.BytesIO()
    Image.new("RGB", size, "#336699").save(file, "PNG")
    return file.getvalue().ljust(padded_to, b"\0")


def upload(
    data: bytes, filename: str = "file.bin", mime_type: str = "application/octet-stream"
) -> ChatUpload:
    return ChatUpload(io.BytesIO(data), filename, mime_type)
