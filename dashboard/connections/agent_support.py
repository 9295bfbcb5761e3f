"""What works with each agent, and the test that proves it.

The tables in README.md and .docs/agents.md are generated from this:
`python -m dashboard.connections.agent_support` prints both. The tests in tests/docs compare them with the
documents, and check that every named test exists.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from coordinator.client.connecting.connectable_agents import CONNECTABLE_AGENTS

COLUMNS: dict[str, str] = {
    "reports": "Its sessions and calls appear while it works.",
    "messages": "Its messages appear, too.",
    "tokens": "Its tokens are counted.",
    "holds": "A call waits until a person decides.",
    "edits the call": "A person may change the call; it runs as changed.",
    "stops the turn": "A person who denies a call may also end the agent's turn.",
    "fails closed": "If Signalbox fails, a call that a rule asks about does not run.",
    "waits for days": (
        "A call that waits longer than a hook may take can be approved later. It runs when the agent "
        "makes it again."
    ),
    "imports": "Earlier sessions are imported from its own files.",
}
NO = "no"


@dataclass(frozen=True, slots=True)
class SupportCell:
    """What an agent supports: `word` is the table's entry, and the test `path::name` proves it.

    `test` is None if the agent does not support it.
    """

    word: str
    test: str | None = None

    @property
    def test_name(self) -> str:
        """The test's name, without its path."""
        return (self.test or "").rpartition("::")[2]


@dataclass(frozen=True, slots=True)
class SupportRow:
    """One agent's row in the table: name, title, whether we ran it, and its cells in the order of COLUMNS."""

    name: str
    title: str
    was_run: bool
    cells: list[tuple[str, SupportCell]]


_CLAUDE, _CODEX, _GEMINI = (
    "tests/claude_code",
    "tests/dialects/test_codex.py",
    "tests/dialects/test_gemini.py",
)
_OPENCODE, _PLUGIN = "tests/dialects/test_opencode.py", "tests/dialects/test_opencode_plugin.py"
_COPILOT = "tests/dialects/test_copilot.py"
_QWEN = "tests/dialects/test_qwen_code.py"
_REAL = "tests/agents/test_more_agents.py::test_connected_held_edited_denied_approved_and_disconnected"
# Sessions that were written from documentation, of an agent that we have not run.
_READ = "tests/dialects/test_documented.py"
_DOCUMENTED = f"{_READ}::test_a_session_is_one_in_any_order_and_posted_twice"
_DOCUMENTED_PENDING = f"{_READ}::test_a_call_that_a_rule_wants_asked_is_approved_and_denied_in_its_form"
_CURSOR_EDITED = f"{_READ}::test_cursor_runs_an_edited_input_where_its_generic_hook_asks"
_TRANSCRIPTS = "tests/transcripts/test_other_agents.py"
_TOKENS = "tests/connecting/test_real_tokens.py::test_its_tokens_arrive_once_it_is_connected"
_ONE_SESSION = "test_its_hooks_make_one_session_in_any_order_and_posted_twice"
_IMPORTED = f"{_TRANSCRIPTS}::test_a_session_reads_as_it_went"
_CLOSED = "tests/client/test_away.py::test_a_held_call_is_denied_before_the_deadline_where_nobody_is_there"
_ONCE = "test_it_is_denied_with_a_number_and_runs_once_after_the_approval"
_TURN_ENDS = (
    "tests/agents/test_real_turn_ends.py::test_a_person_who_denies_a_call_ends_the_turn_where_they_say_so"
)
_AGAIN = ("by calling again", f"tests/dialects/test_told_to_wait.py::{_ONCE}")

# By agent and column: the test, or an entry and the test if the support is limited. A missing column means
# no.
TESTS: dict[str, dict[str, str | tuple[str, str]]] = {
    "claude-code": {
        "reports": f"{_CLAUDE}/test_recording.py::test_a_call_and_its_result_are_paired_whichever_comes_first",
        "messages": f"{_CLAUDE}/test_recording.py::test_a_message_in_pieces_becomes_one",
        "tokens": _TOKENS,
        "holds": "tests/agents/test_real_claude_code.py::test_a_person_decides_whether_it_runs",
        "edits the call": f"{_CLAUDE}/test_deciding.py::test_an_edited_input_is_what_runs",
        "stops the turn": _TURN_ENDS,
        "fails closed": _CLOSED,
        "waits for days": (
            "resumed, or by calling again",
            f"{_CLAUDE}/test_told_to_wait.py::test_a_headless_run_ends_and_asks_again_when_it_is_resumed",
        ),
        "imports": f"{_CLAUDE}/test_transcripts.py::test_a_session_reads_as_it_went",
    },
    "codex": {
        "reports": f"{_CODEX}::{_ONE_SESSION}",
        "messages": f"{_CODEX}::test_a_session_says_who_and_where_it_is_and_its_turns_hang_together",
        "tokens": _TOKENS,
        "holds": f"{_CODEX}::test_what_it_asks_its_person_is_approved_here",
        "edits the call": f"{_CODEX}::test_a_call_that_a_rule_wants_asked_runs_as_it_was_edited",
        "fails closed": _CLOSED,
        "waits for days": _AGAIN,
        "imports": _IMPORTED,
    },
    "gemini": {
        "reports": f"{_GEMINI}::{_ONE_SESSION}",
        "messages": f"{_GEMINI}::{_ONE_SESSION}",
        "holds": f"{_GEMINI}::test_a_call_that_a_rule_wants_asked_waits_and_runs_when_approved",
        "edits the call": f"{_GEMINI}::test_a_call_runs_as_it_was_edited_and_is_one_row",
        "stops the turn": _TURN_ENDS,
        "tokens": "tests/agents/test_real_words.py::test_the_tokens_of_each_request_are_told_once",
        "fails closed": _CLOSED,
        "waits for days": _AGAIN,
        "imports": _IMPORTED,
    },
    "opencode": {
        "reports": f"{_PLUGIN}::test_the_recorded_sessions_are_told_as_the_plugin_is_handed_them",
        "messages": f"{_OPENCODE}::test_what_it_tells_makes_one_session_in_any_order_and_posted_twice",
        "tokens": f"{_OPENCODE}::test_its_tokens_count_once_a_message",
        "holds": f"{_PLUGIN}::test_a_held_call_is_thrown_out_when_denied_and_runs_as_edited_when_approved",
        "edits the call": f"{_PLUGIN}::test_a_held_call_is_thrown_out_when_denied_and_runs_as_edited_when_approved",
        "fails closed": f"{_PLUGIN}::test_no_call_runs_while_the_server_is_away_unless_its_person_wants_that",
        "waits for days": _AGAIN,
        "imports": _IMPORTED,
    },
    "copilot": {
        "reports": f"{_COPILOT}::test_a_session_with_a_sub_agent_is_one_in_any_order_and_posted_twice",
        "messages": _REAL,
        "tokens": ("when imported", f"{_TRANSCRIPTS}::test_tokens_are_told_without_those_from_a_cache"),
        "holds": _REAL,
        "edits the call": _REAL,
        "fails closed": _CLOSED,
        "waits for days": _AGAIN,
        "imports": _IMPORTED,
    },
    "qwen-code": {
        "reports": f"{_QWEN}::test_a_session_with_a_sub_agent_is_one_in_any_order_and_posted_twice",
        "messages": (
            "the last of a turn",
            f"{_QWEN}::test_a_session_with_a_sub_agent_is_one_in_any_order_and_posted_twice",
        ),
        "tokens": ("when imported", f"{_TRANSCRIPTS}::test_tokens_are_told_without_those_from_a_cache"),
        "holds": _REAL,
        "fails closed": _CLOSED,
        "waits for days": _AGAIN,
        "imports": _IMPORTED,
    },
    "kilo": {
        "reports": _REAL,
        "messages": _REAL,
        "tokens": _REAL,
        "holds": _REAL,
        "edits the call": _REAL,
        "fails closed": _CLOSED,
        "waits for days": _AGAIN,
        "imports": _IMPORTED,
    },
    "cursor": {
        "reports": _DOCUMENTED,
        "messages": _DOCUMENTED,
        "holds": _DOCUMENTED_PENDING,
        "edits the call": ("by preToolUse", _CURSOR_EDITED),
        "fails closed": _CLOSED,
        "waits for days": _AGAIN,
    },
    "goose": {
        "reports": _DOCUMENTED,
        "messages": _DOCUMENTED,
        "holds": _DOCUMENTED_PENDING,
        "fails closed": _CLOSED,
        "waits for days": _AGAIN,
    },
}


def list_agent_support_rows() -> list[SupportRow]:
    """Return a row for each agent that can be connected."""
    return [
        support_row
        for name in CONNECTABLE_AGENTS
        if (support_row := build_agent_support_row(name)) is not None
    ]


def build_agent_support_row(name: str) -> SupportRow | None:
    """Return the agent's row; None if the agent cannot be connected."""
    agent = CONNECTABLE_AGENTS.get(name)
    if agent is None:
        return None
    cells = [(column, build_agent_support_cell(TESTS.get(name, {}).get(column))) for column in COLUMNS]
    return SupportRow(name, agent.title, agent.was_run, cells)


def build_agent_support_cell(test: str | tuple[str, str] | None) -> SupportCell:
    if test is None:
        return SupportCell(NO)
    return SupportCell("yes", test) if isinstance(test, str) else SupportCell(*test)


def format_agent_support_as_markdown(tests_at: str | None = None) -> str:
    """Return the table in Markdown.

    Args:
        tests_at: The path from the document to the folder of `tests`, such as "../", to link entries to their
            tests. None for entries without links.
    """
    lines = [f"| Agent | {' | '.join(COLUMNS)} |", f"|---|{':---:|' * len(COLUMNS)}"]
    for support_row in list_agent_support_rows():
        title = support_row.title if support_row.was_run else f"{support_row.title} \\*"
        cells = (
            f'[{c.word}]({tests_at}{c.test.partition("::")[0]} "{c.test_name}")'
            if c.test and tests_at is not None
            else c.word
            for _, c in support_row.cells
        )
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(
        f"README.md:\n{format_agent_support_as_markdown()}\n\n.docs/agents.md:\n{format_agent_support_as_markdown('../')}\n"
    )
