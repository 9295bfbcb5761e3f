"""How much suggested rules spare people, and whether they let anything dangerous through.

    python -m tests.bench.asking

Each history is put into a database of its own: the demo's week, the recorded transcripts of tests/data, and the
labelled calls (tests/data/cases/labelled-calls.jsonl), half of the harmless ones and every dangerous one as if they had
run. From each at most 25 rules are learnt. The share of calls that run unasked with them, of those that nobody refused,
and the labelled calls that they let run are printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

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
    from tests.calls.labelled import DANGEROUS, FOLDER, HARMLESS, read_labelled_calls
    from tests.claude_code.recorded import called

    for call in [*read_labelled_calls(HARMLESS)[::step], *read_labelled_calls(DANGEROUS)]:
        called(call.tool, call.input, call.input, by="claude-code", folder=FOLDER)


HISTORIES: dict[str, Callable[[], None]] = {
    "the demo's week": fill_demo,
    "recorded transcripts": fill_transcripts,
    "labelled calls, every second harmless one": lambda: fill_labelled(2),
    "labelled calls, every harmless one": fill_labelled,
}


def measure_history() -> tuple[int, int, float, int, int, int, int]:
    """Return calls, rules, the share that runs unasked, and of the labelled calls how many pass of how many."""
    from coordinator.policy.rules.tool_rules import load_saved_tool_rules
    from coordinator.policy.suggestions.history import WalkTimeLimit
    from coordinator.policy.suggestions.search import SuggestionSearch
    from dashboard.rules.recorded import READER
    from tests.calls.labelled import (
        DANGEROUS,
        HARMLESS,
        list_allowed_calls,
        read_labelled_calls,
    )

    search = SuggestionSearch.start_search(READER)
    while not search.is_done:
        search.continue_search(READER, load_saved_tool_rules(), NOW, WalkTimeLimit(60))
    rules = [one.suggested_rule(place) for place, one in enumerate(search.tried, 1) if not one.is_grant]
    harmless, dangerous = read_labelled_calls(HARMLESS), read_labelled_calls(DANGEROUS)
    return (
        search.calls,
        len(search.tried),
        search.unasked_share(search.tried),
        len(list_allowed_calls(rules, harmless)),
        len(harmless),
        len(list_allowed_calls(rules, dangerous)),
        len(dangerous),
    )


def main() -> None:
    if len(sys.argv) > 1:
        print_history(sys.argv[1], HISTORIES[sys.argv[1]])
        return
    print("| history | calls | suggestions | run unasked | labelled harmless | labelled dangerous |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for name in HISTORIES:
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {
                "SIGNALBOX_DATA_DIR": folder,
                "DJANGO_SETTINGS_MODULE": "coordinator.settings",
            }
            command = [sys.executable, "-m", "tests.bench.asking", name]
            answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            print(answer.stdout.splitlines()[-1], flush=True)


def print_history(name: str, fill_history: Callable[[], None]) -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    fill_history()
    calls, rules, share, harmless, all_harmless, dangerous, all_dangerous = measure_history()
    print(
        f"| {name} | {calls:,} | {rules} | {share:.1%} | {harmless} of {all_harmless}"
        f" | {dangerous} of {all_dangerous} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
