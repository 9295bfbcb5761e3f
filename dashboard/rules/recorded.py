"""The recorded calls on which tool rules are tested: of agents that ask here, and of imported transcripts."""

from __future__ import annotations

from coordinator.dialects.dialect_registry import build_call_subject_text
from coordinator.importing import lines
from coordinator.policy.suggestions.history import CallHistoryReader
from coordinator.sessions.agent_programs import AGENT_TITLES

# Results of calls that a person refused: how the text begins, and what else it contains.
REFUSALS = (
    ("Rejected in the terminal", ""),
    ("Denied by ", " in Signalbox"),
    # What Claude Code sends to its model. Its transcript has no other sign of a refusal.
    ("The user doesn't want to proceed with this tool use", ""),
    ("The user doesn't want to take this action", ""),
)
READER = CallHistoryReader((*AGENT_TITLES, lines.SOURCE), build_call_subject_text, REFUSALS)
PIECE = 0.4  # seconds of work for one request; the page asks for the next piece
FIRST_PIECE = 0.04  # seconds of work before a page is shown
FIRST_STRETCH = 300  # events that are read at most before a page is shown
