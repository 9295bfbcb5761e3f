"""A session as a Markdown document that reads well anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from coordinator.lib.times import exact, length
from coordinator.models import Session
from coordinator.sessions import titles
from coordinator.sessions.list_facts import began_us
from coordinator.sessions.timeline import ApprovalRow, CallRow, ChildRow, Row
from coordinator.sessions.timeline.walking import walk_rows
from dashboard.looks import Part
from dashboard.rendering.allowance import Allowance
from dashboard.timeline.rows import Block, ShownRow, shown


def markdown_of(session: Session) -> Iterator[str]:
    yield f"# {one_line(titles.of_one(session.pk) or 'Untitled session')}\n\n"
    yield "".join(f"- {name}: {value}\n" for name, value in _facts(session))
    allowance = Allowance()  # for the diffs of the whole document
    began = began_us(session)
    for row in walk_rows(session):
        for one in shown([row], session, began):
            with allowance.in_force():
                text = _row(row, one)
            yield "\n" + text


def _facts(session: Session) -> Iterator[tuple[str, str]]:
    started = session.created_at
    yield "Session", session.pk
    yield "Status", session.status
    yield "Started", exact(started) if isinstance(started, datetime) else str(started)
    for name, value in (
        ("Agent", session.agent_name),
        ("Host", session.hostname),
        ("Directory", session.project_dir),
        ("Parent", session.parent_session_id),
    ):
        if value:
            yield name, value


def _row(row: Row, one: ShownRow) -> str:
    when = f"`{one.offset}` " if one.offset else ""
    if isinstance(row, CallRow):
        took = f", {length(row.duration_ms / 1000)}" if row.duration_ms is not None else ""
        title = f" {one_line(one.look.title)}" if one.look.title else ""
        parts = "".join(_part(part) for part in (*one.look.inputs, *one.look.outputs))
        return f"### {when}{one.look.name}{title} ({row.state}{took})\n{parts}"
    if isinstance(row, ApprovalRow):
        by = f" by {row.request.approved_by}" if row.request.approved_by else ""
        asked = f"{one.asked_for.name} {one_line(one.asked_for.title)}"
        return f"### {when}Asked for permission: {asked}: {row.request.status}{by}\n"
    if isinstance(row, ChildRow):
        child = row.child
        return (
            f"### {when}Started session {child.pk} ({one_line(row.title or child.agent_name or 'untitled')}):"
            f" {child.status}\n"
        )
    if row.row_type == "message":
        return f"## {when}{one.speaker.capitalize()}\n\n{''.join(_block(block) for block in one.blocks)}"
    return f"*{when}{one.milestone[1]}*\n"


def _block(block: Block) -> str:
    if block.text is not None:
        return f"{block.text.strip()}\n\n"
    return _part(block.part) if block.part else ""


def _part(part: Part) -> str:
    label = f"\n{part.label}:\n" if part.label else "\n"
    if part.kind == "facts":
        return label + "".join(f"- {name}: {one_line(str(value))}\n" for name, value in part.value)
    if part.kind == "todos":
        return "\n" + "".join(
            f"- [{'x' if state == 'completed' else ' '}] {text}\n" for state, text in part.value
        )
    if part.kind == "image":
        return f"{label}(an image)\n"
    if part.kind == "diff":
        return label + fenced("\n".join(f"{sign}{line}" for sign, line in part.value), "diff", cut=part.cut)
    return label + fenced(str(part.value), part.language, cut=part.cut) if part.value else label


def fenced(text: str, language: str = "", *, cut: bool = False) -> str:
    """Return a text in a fence longer than any in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    more = "… (shortened)\n" if cut else ""
    return f"{fence}{language}\n{text.rstrip()}\n{more}{fence}\n"


def one_line(text: str) -> str:
    return " ".join(text.split())
