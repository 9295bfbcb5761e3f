"""A session as a Markdown document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from coordinator.lib.times import format_duration, format_exact_time
from coordinator.models import Session
from coordinator.sessions import titles
from coordinator.sessions.list_facts import session_start_microseconds
from coordinator.sessions.timeline import ApprovalRow, CallRow, ChildRow, TimelineRow
from coordinator.sessions.timeline.walking import walk_session_rows
from dashboard.looks import DisplayPart
from dashboard.rendering.allowance import RenderingAllowance
from dashboard.timeline.rows import MessageBlock, TimelineRowDisplay, build_timeline_row_displays


def iterate_session_markdown(session: Session) -> Iterator[str]:
    yield f"# {join_into_one_line(titles.load_session_title(session.pk) or 'Untitled session')}\n\n"
    yield "".join(f"- {name}: {value}\n" for name, value in iterate_session_fact_pairs(session))
    allowance = RenderingAllowance()  # for the diffs of the whole document
    started_at = session_start_microseconds(session)
    for row in walk_session_rows(session):
        for timeline_row in build_timeline_row_displays([row], session, started_at):
            with allowance.share_allowance_in_block():
                text = timeline_row_as_markdown(row, timeline_row)
            yield "\n" + text


def iterate_session_fact_pairs(session: Session) -> Iterator[tuple[str, str]]:
    started = session.created_at
    yield "Session", session.pk
    yield "Status", session.status
    yield "Started", format_exact_time(started) if isinstance(started, datetime) else str(started)
    for name, value in (
        ("Agent", session.agent_name),
        ("Host", session.hostname),
        ("Directory", session.project_dir),
        ("Parent", session.parent_session_id),
    ):
        if value:
            yield name, value


def timeline_row_as_markdown(row: TimelineRow, row_display: TimelineRowDisplay) -> str:
    when = f"`{row_display.time_offset}` " if row_display.time_offset else ""
    if isinstance(row, CallRow):
        took = f", {format_duration(row.duration_ms / 1000)}" if row.duration_ms is not None else ""
        title = (
            f" {join_into_one_line(row_display.call_display.title)}" if row_display.call_display.title else ""
        )
        parts = "".join(
            display_part_as_markdown(part)
            for part in (*row_display.call_display.inputs, *row_display.call_display.outputs)
        )
        return f"### {when}{row_display.call_display.name}{title} ({row.call_state}{took})\n{parts}"
    if isinstance(row, ApprovalRow):
        by = f" by {row.request.approved_by}" if row.request.approved_by else ""
        call_display = row_display.requested_call_display
        request_text = f"{call_display.name} {join_into_one_line(call_display.title)}"
        return f"### {when}Asked for permission: {request_text}: {row.request.status}{by}\n"
    if isinstance(row, ChildRow):
        child = row.child
        return (
            f"### {when}Started session {child.pk} ({join_into_one_line(row.title or child.agent_name or 'untitled')}):"
            f" {child.status}\n"
        )
    if row.row_type == "message":
        body = "".join(message_block_as_markdown(block) for block in row_display.blocks)
        change = f"*{row_display.model_change}*\n\n" if row_display.model_change else ""
        return f"## {when}{row_display.speaker_role.capitalize()}\n\n{change}{body}"
    return f"*{when}{row_display.milestone_display[1]}*\n"


def message_block_as_markdown(block: MessageBlock) -> str:
    if block.text is not None:
        return f"{block.text.strip()}\n\n"
    return display_part_as_markdown(block.part) if block.part else ""


def display_part_as_markdown(part: DisplayPart) -> str:
    label = f"\n{part.label}:\n" if part.label else "\n"
    if part.kind == "facts":
        return label + "".join(f"- {name}: {join_into_one_line(str(value))}\n" for name, value in part.value)
    if part.kind == "todos":
        return "\n" + "".join(
            f"- [{'x' if state == 'completed' else ' '}] {text}\n" for state, text in part.value
        )
    if part.kind == "image":
        return f"{label}(an image)\n"
    if part.kind == "diff":
        return label + fence_markdown_text(
            "\n".join(f"{sign}{line}" for sign, line in part.value), "diff", cut=part.cut
        )
    return label + fence_markdown_text(str(part.value), part.language, cut=part.cut) if part.value else label


def fence_markdown_text(text: str, language: str = "", *, cut: bool = False) -> str:
    """Return a text in a fence of more backticks than any sequence of them in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    more = "… (shortened)\n" if cut else ""
    return f"{fence}{language}\n{text.rstrip()}\n{more}{fence}\n"


def join_into_one_line(text: str) -> str:
    return " ".join(text.split())
