"""The agents whose hooks are understood, by name: `agent_programs.AGENT_TITLES`, each with its module's `DIALECT`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from coordinator.dialects import (
    claude_code,
    codex_transcripts,
    copilot_transcripts,
    gemini_transcripts,
    live_words,
)
from coordinator.dialects.contract import Dialect
from coordinator.importing.lines import LineReader
from coordinator.sessions.agent_programs import AGENT_TITLES

# Of agents whose hooks tell less than all they said, and bring lines of their transcripts along.
_READERS: dict[str, Callable[[str], LineReader]] = {
    "codex": codex_transcripts.CodexTranscriptReader,
    "gemini": gemini_transcripts.GeminiTranscriptReader,
    "copilot": copilot_transcripts.CopilotTranscriptReader,
}


def load_dialect(name: str) -> Dialect:
    module = import_module(f"coordinator.dialects.{name.replace('-', '_')}")
    dialect: Dialect = module.DIALECT
    reader = _READERS.get(name)
    if reader is None:
        return dialect
    tells_tokens = name == "gemini"  # Codex's come with its telemetry
    events_of = live_words.add_transcript_events(dialect.events_of, reader, name, tells_tokens=tells_tokens)
    return replace(dialect, events_of=events_of)


DIALECTS = {name: load_dialect(name) for name in AGENT_TITLES}


# Whose calls transcripts tell, by the tool's name: the first agent that has one of that name, which is Claude Code.
_BY_TOOL = {tool: one for one in reversed(DIALECTS.values()) for tool in one.tools}


def find_call_subject(source: str, tool: str, tool_input: Any) -> str:
    """Return what a recorded call is about, read by its agent's dialect, or the one whose tools are named so."""
    dialect = DIALECTS.get(source) or _BY_TOOL.get(tool, claude_code.DIALECT)
    return dialect.subject(tool, tool_input)
