"""What agents of the demo ask in words: a question with choices, and a plan, both waiting."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from coordinator.actions import approvals
from coordinator.actions.sessions import tool_calls
from coordinator.identity.actors import key_actor_by_name
from coordinator.policy.requests.approvals import PermissionSubject

PROGRAM = "claude-code"
QUESTION = {
    "questions": [
        {
            "question": "Which library shall format dates in the exports?",
            "header": "Library",
            "multiSelect": False,
            "options": [
                {
                    "label": "Intl.DateTimeFormat",
                    "description": "Built into the browser, nothing to install.",
                },
                {"label": "date-fns", "description": "18 kB, and the invoices use it already."},
                {"label": "Temporal polyfill", "description": "The future standard, 60 kB for now."},
            ],
        }
    ]
}
PLAN = {
    "plan": (
        "# Move the exports to streaming\n\n"
        "1. **Read rows in pages** of 1,000 in `exports/reader.py`, by primary key.\n"
        "2. Write each page to the response as it is read; keep the header row.\n"
        "3. Drop `ExportBuffer`, which held the whole file.\n\n"
        "## Tests\n\n"
        "- `tests/test_exports.py`: 50,000 rows in less than 64 MB.\n"
        "- A client that leaves half-way ends the query.\n\n"
        "Nothing changes for whoever downloads a file.\n"
    ),
    "planFilePath": "/home/dev/.claude/plans/stream-the-exports.md",
}
DEMO_QUESTIONS: Sequence[tuple[str, dict[str, Any], timedelta]] = (
    ("AskUserQuestion", QUESTION, timedelta(minutes=3)),
    ("ExitPlanMode", PLAN, timedelta(minutes=6)),
)


def request_answers_to_demo_questions(sessions: Sequence[tuple[str, str]], now: datetime) -> int:
    """Put a question and a plan before people; `sessions` are ids of running sessions and of their agents."""
    asker = key_actor_by_name("demo-fleet")
    for (tool, tool_input, waited), (session_id, agent_id) in zip(DEMO_QUESTIONS, sessions, strict=False):
        approvals.request_permission(
            approvals.NewPermissionRequest(
                subject=PermissionSubject(PROGRAM, tool_calls.PERMISSION, None, tool, tool_input),
                justification=f"Claude Code asks before it uses {tool}.",
                metadata={"hook": "PermissionRequest"},
                session_id=session_id,
                agent_id=agent_id,
            ),
            actor=asker,
            now=now - waited,
        )
    return min(len(DEMO_QUESTIONS), len(sessions))
