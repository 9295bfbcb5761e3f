"""What the real Codex, Gemini CLI and OpenCode wrote of one session each, and what hooks and telemetry told of it.

Recorded on 2026-11-22 with `@openai/codex` 0.169.0, `@google/gemini-cli` 0.61.0 and `opencode-ai` 1.18.33, each driven
by a scripted model on loopback; paths are renamed, long texts cut, and of the telemetry only what tells something kept.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.utils import timezone

from coordinator.actions.sessions import reported_sessions
from coordinator.actions.sessions.events import record_events
from coordinator.client.hook_agents import HOOK_AGENTS
from coordinator.client.transcript_lines import build_hook_body_with_transcript
from coordinator.dialects.dialect_base import Dialect
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.dialects.hooks import AgentHook
from coordinator.dialects.otlp_logs import convert_otlp_logs_to_reports
from coordinator.dialects.otlp_traces import convert_otlp_traces_to_reports
from coordinator.edge.ingest.otlp import create_sessions_and_assign_events
from coordinator.identity.keys import LOCAL_PROGRAM
from coordinator.lib import instants
from coordinator.models import Event, Session
from coordinator.sessions.events import NewEvent
from coordinator.sessions.reports import SessionLocation

DATA = Path(__file__).parents[1] / "data" / "transcripts"
# The agents' own ids of the recorded sessions, and when they began.
CODEX, GEMINI = "01a20302-f860-79b2-878d-5e9adc02dc9b", "acd23a51"
BEGAN = "2026-11-22T11:27:36.500000+00:00"
QWEN_BEGAN = "2026-11-26T18:01:20.000000+00:00"
COPILOT_BEGAN = "2026-11-26T17:47:09.523000+00:00"


def copied(agent: str, place: Path) -> Path:
    """Copy an agent's recording to where it may be changed; OpenCode's and Kilo's are made databases again."""
    folder = place / agent
    shutil.copytree(DATA / agent, folder)
    if agent in {"opencode", "kilo"}:
        with sqlite3.connect(folder / f"{agent}.db") as db:
            db.executescript((folder / f"{agent}.sql").read_text())
        db.close()
    return folder


def brought(agent: str, place: Path, *more: str) -> str:
    """Import the transcripts below `place`; return what the command says."""
    out = StringIO()
    call_command("import_transcripts", agent, str(place), "--host", "laptop", *more, stdout=out)
    return out.getvalue()


def the_session() -> Session:
    """Return the one session that is here."""
    return Session.objects.get()


def story(session: Session) -> list[tuple[str, str]]:
    """Return what a reader sees of a session in order: who said what, which tools were called, what failed."""
    found = []
    for event in Event.objects.filter(session=session).order_by("context__instant_us", "id"):
        if event.event_type == "message":
            found += [(event.role, block.get("text") or block["type"]) for block in event.content]
        elif event.event_type == "pre_tool":
            found.append(("calls", event.tool_name))
        elif event.event_type == "post_tool":
            found.append(("fails" if event.error else "gives", event.tool_name))
    return found


def read_recorded_hooks(agent: str) -> list[str]:
    """Return the hooks of an agent's recorded session in their order, one JSON text each."""
    folder = DATA.parent / agent.replace("-", "_") if agent in {"copilot", "qwen-code"} else DATA / agent
    return (folder / "hooks.jsonl").read_text().splitlines()


def told_by_hooks(agent: str, *, later: timedelta = timedelta(0), transcript: Path | None = None) -> None:
    """Record the session as the door of hooks does, or one that went the same way some time `later`.

    With a `transcript` lines of it come along, as the hook command sends them.
    """
    for tell in told_by_hooks_one_by_one(agent, later=later, transcript=transcript):
        tell()


def told_by_hooks_one_by_one(
    agent: str, *, later: timedelta = timedelta(0), transcript: Path | None = None
) -> Iterator[Callable[[], None]]:
    """Yield what records each of the session's hooks."""
    dialect = DIALECTS[agent]
    began = _moment({"copilot": COPILOT_BEGAN, "qwen-code": QWEN_BEGAN}.get(agent, BEGAN))
    for number, line in enumerate(read_recorded_hooks(agent)):
        at = began + later + number * timedelta(milliseconds=100)
        told = json.loads(line)
        if isinstance(told.get("timestamp"), str):
            told["timestamp"] = (_moment(told["timestamp"]) + later).isoformat()
        body = json.dumps(told).encode()
        words = HOOK_AGENTS[agent].words
        if transcript is not None and words is not None and told["hook_event_name"] in words.hooks:
            body = build_hook_body_with_transcript(body, told | {"transcript_path": str(transcript)}, words)
        hook = dialect.read_hook(body, instants.format_canonical_instant(at))
        hook = dataclasses.replace(hook, sent_as=f"{agent} {at}")
        yield functools.partial(_record, dialect, hook)


def _record(dialect: Dialect, hook: AgentHook) -> None:
    place = SessionLocation("/home/dev/project", profile=dialect.name, agent_name=dialect.name)
    made = reported_sessions.find_or_create_reported_session(hook.session, place, timezone.now()).session_id
    record_events(dialect.build_hook_and_transcript_events(hook, made), timezone.now())


def _moment(text: str) -> Any:
    return instants.parse_instant_or_none(text)


def telemetry(agent: str) -> Iterator[tuple[str, Any]]:
    """Yield each export that the agent sent: its kind, and its body."""
    for line in (DATA / agent / "telemetry.jsonl").read_text().splitlines():
        told = json.loads(line)
        yield told["kind"], told["body"]


def told_by_telemetry(agent: str) -> None:
    """Record the session as the door of telemetry does."""
    for kind, body in telemetry(agent):
        sent(kind, body, timezone.now())


def sent(kind: str, body: Any, now: datetime) -> list[NewEvent]:
    """Record one export as the door of telemetry does; return the events that it made."""
    reports = (convert_otlp_logs_to_reports if kind == "logs" else convert_otlp_traces_to_reports)(body, now)
    events = create_sessions_and_assign_events(reports, LOCAL_PROGRAM, now)
    record_events(events, now)
    return events
