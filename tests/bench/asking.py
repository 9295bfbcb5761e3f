"""How much suggested rules spare people, and whether they let anything dangerous through.

    python -m tests.bench.asking

Each history is put into a database of its own: the demo's week, the recorded transcripts of tests/data, and the
labelled calls (tests/data/cases/labelled-calls.jsonl), half of the harmless ones and every dangerous one as if they had
run. From each at most 25 rules are learnt: alone, and with all ready-made rules that allow switched on, which count
among the 25. The share of calls that run unasked with them, of those that nobody refused, and the labelled calls that
they let run are printed: of the harmless ones those that were learnt from and the others apart.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.calls.labelled import LabelledCall

DATA = Path(__file__).parents[1] / "data"
NOW = datetime.now(UTC).replace(microsecond=0)


def fill_demo() -> None:
    from coordinator.demo import fill

    fill.fill_demo_database(seed=7, days=7, now=NOW)


def fill_transcripts() -> None:
    from django.core.management import call_command

    for agent, folder in (
        ("claude-code", DATA / "claude_code/transcripts"),
        ("codex", DATA / "transcripts/codex"),
        ("gemini", DATA / "transcripts/gemini/tmp"),
        ("qwen-code", DATA / "transcripts/qwen-code/projects"),
        ("copilot", DATA / "transcripts/copilot/session-state"),
    ):
        call_command("import_transcripts", agent, str(folder), verbosity=0)


def fill_labelled(step: int = 1) -> None:
    from tests.calls.labelled import DANGEROUS, FOLDER, read_labelled_calls
    from tests.claude_code.recorded import called

    for call in [*list_learnt_calls(step), *read_labelled_calls(DANGEROUS)]:
        called(call.tool, call.input, call.input, by="claude-code", folder=FOLDER)


def list_learnt_calls(step: int) -> list[LabelledCall]:
    """Return every `step`th harmless labelled call; none for 0."""
    from tests.calls.labelled import HARMLESS, read_labelled_calls

    return read_labelled_calls(HARMLESS)[::step] if step else []


HISTORIES: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "the demo's week": fill_demo,
    "recorded transcripts": fill_transcripts,
    "labelled calls, every second harmless one": lambda: fill_labelled(2),
    "labelled calls, every harmless one": fill_labelled,
}
ALONE, SWITCHED_ON = "learnt", "ready-made, learnt"
LEARNT_STEPS = {"labelled calls, every second harmless one": 2, "labelled calls, every harmless one": 1}


def measure_history(step: int) -> tuple[int, int, float, list[tuple[int, int]]]:
    """Return calls, rules, the share that runs unasked, and of labelled calls how many pass of how many.

    With ready-made rules that are switched on, fewer are learnt: 25 in all. Labelled calls are judged by these alone,
    not by other rules of the history.

    These are the harmless ones that were learnt from, the other harmless ones, and the dangerous ones.
    """
    from coordinator.policy.rules.tool_rules import load_saved_tool_rules
    from coordinator.policy.suggestions.history import WalkTimeLimit
    from coordinator.policy.suggestions.search import (
        MOST_SUGGESTED,
        SuggestionSearch,
        insert_rules_after_last_deny,
    )
    from dashboard.rules.recorded import READER
    from tests.calls.labelled import (
        DANGEROUS,
        HARMLESS,
        list_allowed_calls,
        read_labelled_calls,
    )

    saved = load_saved_tool_rules()
    search = SuggestionSearch.start_suggestion_search_over_history(READER)
    while not search.is_done:
        search.continue_suggestion_search(READER, saved, NOW, WalkTimeLimit(60))
    ready_made = [rule for rule in saved if rule.ready_made]
    chosen = search.tried[: MOST_SUGGESTED - len(ready_made)]
    suggested = [one.suggested_rule(0) for one in chosen if not one.is_grant]
    rules = insert_rules_after_last_deny(ready_made, suggested)
    learnt = list_learnt_calls(step)
    others = [call for call in read_labelled_calls(HARMLESS) if call not in learnt]
    passing = [
        (len(list_allowed_calls(rules, calls)), len(calls))
        for calls in (learnt, others, read_labelled_calls(DANGEROUS))
    ]
    return search.calls, len(rules), search.share_of_calls_suggestions_allow(chosen), passing


def main() -> None:
    if len(sys.argv) > 1:
        print_history(sys.argv[1], sys.argv[2])
        return
    print(
        "| history | rules | calls | rules | run unasked | harmless, learnt | harmless, others | dangerous |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for name, kind in itertools.product(HISTORIES, (ALONE, SWITCHED_ON)):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {
                "SIGNALBOX_DATA_DIR": folder,
                "DJANGO_SETTINGS_MODULE": "coordinator.settings",
            }
            command = [sys.executable, "-m", "tests.bench.asking", name, kind]
            answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            print(answer.stdout.splitlines()[-1], flush=True)


def switch_rules_on() -> None:
    """Switch on every ready-made rule that allows."""
    from coordinator.actions.policy.ready_made import set_ready_made_rule_enabled
    from coordinator.identity.actors import Actor
    from coordinator.policy.rules.ready_made_allowing import ALLOWING_RULES

    for rule in ALLOWING_RULES:
        set_ready_made_rule_enabled(rule.name, is_on=True, actor=Actor("user", "bench"), now=NOW)


def print_history(name: str, kind: str) -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    HISTORIES[name]()
    if kind == SWITCHED_ON:
        switch_rules_on()
    calls, rules, share, passing = measure_history(LEARNT_STEPS.get(name, 0))
    labelled = " | ".join(f"{passed} of {every}" if every else "" for passed, every in passing)
    print(f"| {name} | {kind} | {calls:,} | {rules} | {share:.1%} | {labelled} |", flush=True)


if __name__ == "__main__":
    main()
