"""The demo's chats: people and agents talk about the week's work, with charts and files attached."""

from __future__ import annotations

import io
import uuid
from datetime import datetime, timedelta
from random import Random
from typing import Any

from PIL import Image, ImageDraw

from coordinator.demo.cast import PEOPLE, TEAMS, TRADES, Team, demo_agent_id
from coordinator.models import ChatAttachment, ChatMessage

# (who, what); `%s` is one of the team's modules. A `+chart` or `+file` is attached.
EXCHANGES: tuple[tuple[tuple[str, str], ...], ...] = (
    (
        ("user", "How is %s doing today?"),
        ("agent", "Quiet. p99 is **210 ms**, two retries in the last hour, no errors.\n\n+chart"),
        ("user", "Good. Tell me if it goes above 400."),
        ("agent", "I will. I also noticed that the nightly job takes 12 minutes longer than last week."),
    ),
    (
        ("user", "Can you explain the rounding in %s to somebody new?"),
        (
            "agent",
            "Each line is rounded on its own, half up, **before** it is added:\n\n"
            '```python\namount = (price * quantity).quantize(Decimal("0.01"), ROUND_HALF_UP)\n```\n\n'
            "So two lines of 9.995 make 20.00, not 19.99. The invoice does the same.",
        ),
        ("user", "Thanks, that is the clearest version so far."),
    ),
    (
        ("user", "Here is the log of last night's failure.\n+file"),
        (
            "agent",
            "The pool ran out of connections at 03:12. `%s` v412 holds a transaction open during an HTTP call.",
        ),
        ("user", "Roll back?"),
        ("agent", "I asked for permission to roll back; it waits in Approvals."),
        ("system", "Permission request approved by jonas (demo)."),
        ("agent", "Rolled back to v411. p99 is at 230 ms again.\n+chart"),
    ),
    (
        ("user", "What did you do this week?"),
        (
            "agent",
            "- fixed the rounding of %s totals\n- reviewed four pull requests (one had a tenant leak)\n"
            "- raised coverage to 88 %\n- asked for 6 permissions, got 5",
        ),
    ),
)
CHART = (720, 260)  # pixels


def write_demo_chats(dice: Random, now: datetime) -> int:
    """Write threads for two trades of every team; return how many messages."""
    written = 0
    for team in TEAMS:
        for trade in dice.sample(TRADES, 3):
            clock = now - timedelta(days=dice.uniform(2, 6))
            for exchange in dice.sample(EXCHANGES, dice.randint(2, len(EXCHANGES))):
                person = dice.choice(PEOPLE)
                module = dice.choice(team.modules)
                for source, text in exchange:
                    clock += timedelta(seconds=dice.uniform(8, 240))
                    write_demo_message(
                        dice,
                        team,
                        demo_agent_id(team, trade),
                        person=person,
                        source=source,
                        text=text.replace("%s", module),
                        at=clock,
                    )
                    written += 1
                clock += timedelta(hours=dice.uniform(2, 20))
                if clock > now - timedelta(hours=1):
                    break
    return written


def write_demo_message(
    dice: Random, team: Team, agent: str, *, person: str, source: str, text: str, at: datetime
) -> None:
    text, _, attached = text.partition("\n+") if "\n+" in text else (text, "", "")
    message = ChatMessage(
        id=f"msg_{uuid.UUID(int=dice.getrandbits(128)).hex}", agent_id=agent, user_id=person
    )
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text.strip()}]
    attachment = (
        build_unsaved_demo_attachment(dice, team, message, attached.strip(), at) if attached else None
    )
    if attachment is not None:
        kind = "image" if attachment.mime_type == "image/png" else "file"
        blocks.append(
            {
                "type": kind,
                "attachment_id": attachment.id,
                "filename": attachment.filename,
                "mime_type": attachment.mime_type,
                "size_bytes": attachment.size_bytes,
                **({"width": CHART[0], "height": CHART[1]} if kind == "image" else {}),
            }
        )
    message.source, message.content, message.created_at = source, blocks, at
    message.save(force_insert=True)
    if attachment is not None:
        attachment.save(force_insert=True)


def build_unsaved_demo_attachment(
    dice: Random, team: Team, message: ChatMessage, kind: str, at: datetime
) -> ChatAttachment:
    """Return a chart (PNG) or a log file (text), small enough to stand in the row."""
    if kind == "chart":
        name, mime, data = f"{team.name}-latency.png", "image/png", draw_latency_chart(dice)
    else:
        lines = (f"03:1{i % 10}:{i:02} pool exhausted (32/32), waited {900 + 31 * i} ms\n" for i in range(60))
        name, mime, data = f"{team.name}-night.log", "text/plain", "".join(lines).encode()
    return ChatAttachment(
        id=f"att_{uuid.UUID(int=dice.getrandbits(128)).hex}",
        message=message,
        filename=name,
        mime_type=mime,
        size_bytes=len(data),
        storage_type="inline",
        inline_data=data,
        created_at=at,
    )


def draw_latency_chart(dice: Random) -> bytes:
    """Draw a line over a day as a PNG of a few kilobytes."""
    (width, height), margin = CHART, 24
    picture = Image.new("RGB", (width, height), "#ffffff")
    pen = ImageDraw.Draw(picture)
    for line in range(5):
        y = margin + line * (height - 2 * margin) // 4
        pen.line([(margin, y), (width - margin, y)], fill="#e4e7ec")
    level, points = 0.4, []
    for step in range(49):
        level = min(0.95, max(0.08, level + dice.uniform(-0.12, 0.12)))
        points.append(
            (margin + step * (width - 2 * margin) / 48, height - margin - level * (height - 2 * margin))
        )
    pen.line(points, fill="#2f6fdb", width=3, joint="curve")
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()
