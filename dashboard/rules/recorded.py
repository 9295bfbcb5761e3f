"""The recorded calls that tool rules are tested on: those of agents that ask here, and of imported transcripts."""

from __future__ import annotations

from coordinator.dialects.dialect_registry import find_call_subject
from coordinator.importing import lines
from coordinator.policy.suggestions.history import CallHistoryReader
from coordinator.sessions.agent_programs import AGENT_TITLES

# How the result of a call tells that a person refused it: its beginning, and what stands in it.
REFUSALS = (
    ("Rejected in the terminal", ""),
    ("Denied by ", " in Signalbox"),
    # What Claude Code tells its model, where nothing else in a transcript says so.
    ("The user doesn't want to proceed with this tool use", ""),
    ("The user doesn't want to take this action", ""),
)
READER = CallHistoryReader((*AGENT_TITLES, lines.SOURCE), find_call_subject, REFUSALS)
PIECE = 0.4  # seconds of work for one request; the page asks for the next piece
FIRST_PIECE = 0.04  # seconds of work before a page is shown
FIRST_STRETCH = 300  # events; a page reads no more before it is shown, however many there are
