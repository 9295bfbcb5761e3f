"""The agents whose hooks are understood, by name: `agent_programs.AGENT_TITLES`, each with its module's `DIALECT`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from coordinator.dialects import claude_code, codex_transcripts, copilot_transcripts, gemini_transcripts
from coordinator.dialects.dialect_base import Dialect
from coordinator.importing.lines import LineReader
from coordinator.sessions.agent_programs import AGENT_TITLES

# Of agents whose hooks do not report all messages, and have lines of their transcripts attached. They are here
# because the modules that read transcripts import the dialects.
_LINE_READERS: dict[str, Callable[[str], LineReader]] = {
    "codex": codex_transcripts.CodexTranscriptReader,
    "gemini": gemini_transcripts.GeminiTranscriptReader,
    "copilot": copilot_transcripts.CopilotTranscriptReader,
}


def import_dialect_with_line_reader(name: str) -> Dialect:
    dialect: Dialect = import_module(f"coordinator.dialects.{name.replace('-', '_')}").DIALECT
    dialect.line_reader = _LINE_READERS.get(name)
    return dialect


DIALECTS = {name: import_dialect_with_line_reader(name) for name in AGENT_TITLES}


# The dialect of a transcript's call, by tool name: the first agent that has a tool of that name (Claude Code).
_BY_TOOL = {tool: dialect for dialect in reversed(DIALECTS.values()) for tool in dialect.tools}


def build_call_subject_text(source: str, tool: str, tool_input: Any) -> str:
    """Return what a recorded call is about, read by its agent's dialect, or the one whose tools are named so."""
    dialect = DIALECTS.get(source) or _BY_TOOL.get(tool, claude_code.DIALECT)
    return dialect.build_call_subject_text(tool, tool_input)
