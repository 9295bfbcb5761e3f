"""The agents whose hooks are understood, by name: `agent_programs.AGENT_TITLES`, each with its module's `DIALECT`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from coordinator.dialects import claude_code
from coordinator.dialects.contract import Dialect
from coordinator.sessions.agent_programs import AGENT_TITLES


def _dialect(name: str) -> Dialect:
    module = import_module(f"coordinator.dialects.{name.replace('-', '_')}")
    dialect: Dialect = module.DIALECT
    return dialect


DIALECTS = {name: _dialect(name) for name in AGENT_TITLES}


# Whose calls transcripts tell, by the tool's name: the first agent that has one of that name, which is Claude Code.
_BY_TOOL = {tool: one for one in reversed(DIALECTS.values()) for tool in one.tools}


def subject_text(source: str, tool: str, tool_input: Any) -> str:
    """Return what a recorded call is about, read by its agent's dialect, or the one whose tools are named so."""
    dialect = DIALECTS.get(source) or _BY_TOOL.get(tool, claude_code.DIALECT)
    return dialect.subject(tool, tool_input)
