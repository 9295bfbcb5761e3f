"""What other agents than Claude Code write of their sessions comes in as the story that a reviewer reads, and once."""

from __future__ import annotations

import json
import os
import sqlite3
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from coordinator.models import AuditLog, Event, EventContext, Session, SessionTitle
from coordinator.usage import reading as usage
from tests.transcripts.recorded import brought, copied, story, the_session, told_by_hooks

pytestmark = pytest.mark.django_db
AGENTS = ("codex", "gemini", "opencode", "copilot", "kilo", "qwen-code")

TURN = [
    ("assistant", "thinking"), ("assistant", "I look around first."), ("calls", "Bash"), ("gives", "Bash"),
    ("assistant", "thinking"), ("calls", "Bash"), ("fails", "Bash"),
    ("assistant", "thinking"), ("calls", "apply_patch"), ("fails", "apply_patch"),
    ("assistant", "thinking"), ("calls", "update_plan"), ("fails", "update_plan"),
    ("assistant", "All done."),
]  # fmt: skip
STORIES = {
    "codex": [("user", "please look around and write hello"), *TURN, ("user", "and once more"), *TURN],
    "gemini": [
        ("user", "please look around and write hi"),
        ("assistant", "thinking"), ("assistant", "I look around first."),
        ("calls", "run_shell_command"), ("gives", "run_shell_command"),
        ("calls", "write_file"), ("gives", "write_file"),
        ("calls", "read_file"), ("fails", "read_file"),
        ("assistant", "All done."),
    ],
    "opencode": [
        ("user", '"please look around and write hi"'),
        ("assistant", "I look. "), ("calls", "bash"), ("gives", "bash"),
        ("calls", "write"), ("gives", "write"), ("calls", "read"), ("fails", "read"),
        ("assistant", "All done."),
    ],
    "qwen-code": [
        ("user", "Do as the script says."),
        ("calls", "run_shell_command"), ("gives", "run_shell_command"),
        ("calls", "write_file"), ("gives", "write_file"),
        ("calls", "run_shell_command"), ("fails", "run_shell_command"),
        ("calls", "mcp__every__echo"), ("gives", "mcp__every__echo"),
        ("calls", "agent"), ("calls", "run_shell_command"), ("gives", "run_shell_command"),
        ("assistant", "Two files."), ("gives", "agent"), ("assistant", "Done."),
    ],
    "kilo": [
        ("user", '"Do as the script says."'),
        ("calls", "bash"), ("gives", "bash"), ("calls", "bash"), ("gives", "bash"),
        ("assistant", "Done."),
    ],
    "copilot": [
        ("user", "Do as the script says."),
        ("calls", "Bash"), ("gives", "Bash"), ("calls", "Write"), ("gives", "Write"),
        ("calls", "Bash"), ("fails", "Bash"), ("calls", "Bash"), ("gives", "Bash"),
        ("calls", "read_bash"), ("gives", "read_bash"),
        ("calls", "Agent"), ("calls", "Bash"), ("gives", "Bash"), ("assistant", "Two files."), ("gives", "Agent"),
        ("assistant", "Done."),
    ],
}  # fmt: skip


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_reads_as_it_went(agent: str, tmp_path: Path) -> None:
    brought(agent, copied(agent, tmp_path))
    found = the_session()
    assert (found.status, found.project_dir, found.hostname, found.agent_name, found.executor_profile) == (
        "finished", "/home/dev/project", "laptop", agent, agent,
    )  # fmt: skip
    assert story(found) == STORIES[agent]


@pytest.mark.parametrize("agent", AGENTS)
def test_again_nothing_comes_in(agent: str, tmp_path: Path) -> None:
    place = copied(agent, tmp_path)
    brought(agent, place)
    before = Event.objects.count()
    assert "imported  0 events" in brought(agent, place)
    assert Event.objects.count() == before
    assert AuditLog.objects.filter(event_type="TRANSCRIPTS_IMPORTED").count() == 2


@pytest.mark.parametrize("agent", AGENTS)
def test_a_dry_run_tells_the_same_and_changes_nothing(agent: str, tmp_path: Path) -> None:
    place = copied(agent, tmp_path)
    told = brought(agent, place, "--dry-run")
    assert [model.objects.count() for model in (Event, Session, AuditLog)] == [0, 0, 0]
    assert next(line for line in told.splitlines() if line.startswith("imported")) in brought(agent, place)


@pytest.mark.parametrize("agent", ["codex", "gemini"])
def test_a_file_that_grows_adds_only_what_is_new(agent: str, tmp_path: Path) -> None:
    place = copied(agent, tmp_path)
    path = next(place.rglob("rollout-*.jsonl" if agent == "codex" else "session-*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    for number in range(0, len(lines), 5):  # broken off in the middle of a line, too
        path.write_bytes(b"".join(lines[:number]) + lines[number][:40])
        brought(agent, place)
    path.write_bytes(b"".join(lines))
    brought(agent, place)
    assert story(the_session()) == STORIES[agent]
    spent = usage.load_usage_by_session([the_session().pk])[the_session().pk]
    assert (spent.input, spent.output) == {"codex": (2 * 3010, 2 * 110), "gemini": (2406, 106)}[agent]


def test_tokens_are_told_without_those_from_a_cache(tmp_path: Path) -> None:
    for agent in AGENTS:
        brought(agent, copied(agent, tmp_path))
    spent = {(row.session.agent_name, row.model): row for row in _requests()}
    assert {
        key: (row.input_tokens, row.output_tokens, row.cache_read_tokens) for key, row in spent.items()
    } == {
        ("codex", "gpt-5"): (600, 20, 400),
        ("gemini", "gemini-3.1-pro-preview"): (600, 25, 400),
        ("opencode", "m"): (600, 20, 400),
        ("copilot", "scripted"): (1000, 50, 300),
        ("kilo", "scripted"): (7, 7, 0),
        ("qwen-code", "scripted"): (1000, 50, 300),
    }


def _requests() -> list[Any]:
    """Return the first request of each session."""
    found = {}
    for row in EventContext.objects.filter(event__event_type="model_request").order_by("-instant_us", "-pk"):
        row.session = Session.objects.get(pk=row.session_id)
        found[row.session_id] = row
    return list(found.values())


def test_results_say_how_they_ended_and_how_long_they_took(tmp_path: Path) -> None:
    brought("codex", copied("codex", tmp_path))
    ran, failed = Event.objects.filter(event_type="post_tool", tool_name="Bash").order_by("id")[:2]
    assert (ran.exit_code, ran.tool_input, ran.error) == (0, {"command": "ls -la"}, None)
    assert ran.tool_output.startswith("total ")
    assert ran.context.duration_ms is not None
    assert failed.exit_code == 1
    assert failed.error.startswith("Exit code 1\ncat: missing.txt")


def test_what_hooks_told_of_a_session_is_not_told_again(tmp_path: Path) -> None:
    told_by_hooks("codex")
    place = copied("codex", tmp_path)
    brought("codex", place)
    assert Session.objects.count() == 1
    assert [one for one in story(the_session()) if one[0] != "gives"].count(("calls", "Bash")) == 4
    assert [who for who, _ in story(the_session())].count("user") == 2
    assert story(the_session()).count(("assistant", "All done.")) == 2
    assert "imported  0 events" in brought("codex", place)


def test_calls_that_hooks_told_without_an_id_are_known_by_what_they_are(tmp_path: Path) -> None:
    told_by_hooks("gemini")
    before = story(the_session())
    brought("gemini", copied("gemini", tmp_path))
    told = story(the_session())
    assert ("assistant", "I look around first. \nAll done.") in before
    assert sorted(told) == sorted([*before, ("assistant", "thinking")])  # which no hook tells


@pytest.mark.parametrize("agent", ["codex", "gemini"])
def test_what_an_agent_said_is_complete_while_it_is_watched(agent: str, tmp_path: Path) -> None:
    place = copied(agent, tmp_path)
    transcript = next(place.rglob("rollout-*.jsonl" if agent == "codex" else "session-*.jsonl"))
    told_by_hooks(agent, transcript=transcript)
    said = [one for one in STORIES[agent] if one[0] == "assistant"]
    live = story(the_session())
    assert sorted(one for one in live if one[0] == "assistant") == sorted(said)
    texts = [text for who, text in live if who == "assistant" and text != "thinking"]
    assert texts == [text for _, text in said if text != "thinking"]
    told_by_hooks(agent, later=timedelta(milliseconds=1), transcript=transcript)  # the same lines come again
    brought(agent, place)
    assert sorted(one for one in story(the_session()) if one[0] == "assistant") == sorted(said)
    assert not Event.objects.filter(content__contains="signalbox_transcript").exists()
    assert not EventContext.objects.filter(extra__contains="signalbox_transcript").exists()


def test_copilot_s_words_come_along_with_the_end_of_a_turn(tmp_path: Path) -> None:
    place = copied("copilot", tmp_path)
    told_by_hooks("copilot", transcript=next(place.rglob("events.jsonl")))
    live = story(the_session())
    assert live.count(("assistant", "Done.")) == 1
    assert live.count(("assistant", "Two files.")) == 1
    brought("copilot", place)
    assert sorted(story(the_session())) == sorted([*live, ("calls", "read_bash"), ("gives", "read_bash")])


def test_what_qwen_code_s_hooks_told_is_not_told_again(tmp_path: Path) -> None:
    told_by_hooks("qwen-code")
    assert sorted(story(the_session())) == sorted(STORIES["qwen-code"])
    brought("qwen-code", copied("qwen-code", tmp_path))
    assert sorted(story(the_session())) == sorted(STORIES["qwen-code"])


def test_what_copilot_s_hooks_told_is_not_told_again(tmp_path: Path) -> None:
    told_by_hooks("copilot")
    (session,) = Session.objects.all()
    before = story(session)
    brought("copilot", copied("copilot", tmp_path))
    waits = ("system", '**Wait** Shell command "Wait" (shellId: s1) has completed successfully.')
    of_its_file_alone = [("calls", "read_bash"), ("gives", "read_bash"), ("assistant", "Done.")]
    assert sorted(story(the_session())) == sorted([*before, *of_its_file_alone])
    assert sorted([*STORIES["copilot"], waits]) == sorted(story(the_session()))


@pytest.mark.parametrize("agent", ["codex", "gemini"])
def test_hooks_that_come_after_the_import_tell_nothing_twice(agent: str, tmp_path: Path) -> None:
    brought(agent, copied(agent, tmp_path))
    told_by_hooks(agent)
    assert story(the_session()) == STORIES[agent]


def test_the_same_words_a_while_after_the_import_are_said_anew(tmp_path: Path) -> None:
    brought("gemini", copied("gemini", tmp_path))
    told_by_hooks("gemini", later=timedelta(minutes=3))
    told = story(the_session())
    assert told.count(("user", "please look around and write hi")) == 2
    assert ("assistant", "I look around first. \nAll done.") in told


def test_secrets_are_masked_as_at_every_door(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    for agent, pattern in (("codex", "rollout-*.jsonl"), ("gemini", "session-*.jsonl")):
        place = copied(agent, tmp_path)
        path = next(place.rglob(pattern))
        path.write_text(path.read_text().replace("ls -la", f"curl -u {secret}"))
        brought(agent, place)
    assert Event.objects.filter(tool_input__contains="masked: GitHub").exists()
    assert not Event.objects.filter(tool_input__contains="a1B2a1B2").exists()


def test_odd_lines_are_counted_with_their_first_place(tmp_path: Path) -> None:
    for agent, pattern in (("codex", "rollout-*.jsonl"), ("gemini", "session-*.jsonl")):
        place = copied(agent, tmp_path)
        path = next(place.rglob(pattern))
        odd = ['{"type": "holo", "payload": {}}', "[1]", "7", "{", '{"type": 7, "id": []}']
        path.write_text("".join(f"{line}\n" for line in odd) + path.read_text() + '{"type"')
        told = brought(agent, place)
        assert f"no JSON, first at {path}:4" in told
        assert f"unfinished last line, first at {path}" in told
    assert {one.agent_name: story(one) for one in Session.objects.all()} == {
        agent: STORIES[agent] for agent in ("codex", "gemini")
    }


def test_any_value_in_any_place_leaves_the_rest_as_it_was(tmp_path: Path) -> None:
    """Each field of each recorded line in turn becomes something else; whatever is told of it, nothing raises."""
    odd: list[Any] = [None, 7, -1.5e300, True, "", "x", [], {}, [[]], [{"text": 7}], {"text": {}}]
    for agent, pattern in (("codex", "rollout-*.jsonl"), ("gemini", "session-*.jsonl")):
        place = copied(agent, tmp_path)
        path = next(place.rglob(pattern))
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        changed = []
        for line in lines[:45]:
            for number, (holder, name) in enumerate(_places(line)):
                before = holder[name]
                holder[name] = odd[number % len(odd)]
                changed.append(json.dumps(line))
                holder[name] = before
        path.write_text("\n".join(changed) + "\n")
        assert "refused" not in brought(agent, place)
        assert Event.objects.exists()


def _places(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return [place for name in value for place in [(value, name), *_places(value[name])]]
    if isinstance(value, list):
        return [place for number in range(len(value)) for place in [(value, number), *_places(value[number])]]
    return []


def test_a_chat_of_an_older_gemini_is_one_document(tmp_path: Path) -> None:
    place = copied("gemini", tmp_path)
    path = next(place.rglob("session-*.jsonl"))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    messages = {one["id"]: one for one in records if "id" in one}
    path.with_suffix(".json").write_text(
        json.dumps(records[0] | {"summary": "Say hi", "messages": list(messages.values())}, indent=1)
    )
    path.unlink()
    brought("gemini", place)
    assert story(the_session()) == STORIES["gemini"]
    assert SessionTitle.objects.get().title == "Say hi"


def test_opencode_is_read_while_it_writes_and_nothing_is_made_beside_it(tmp_path: Path) -> None:
    place = copied("opencode", tmp_path)
    with sqlite3.connect(place / "opencode.db", isolation_level=None) as db:
        db.execute("PRAGMA journal_mode = wal")
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE session SET title = 'Say hi'")
        before = sorted(os.listdir(place))
        assert "imported  13 events" in brought("opencode", place)
        assert sorted(os.listdir(place)) == before
        db.execute("COMMIT")
        brought("opencode", place)
    db.close()
    assert SessionTitle.objects.get().title == "Say hi"
    os.chmod(place, 0o555)  # a folder that one can only read
    assert "imported  0 events" in brought("opencode", place)
    assert sorted(os.listdir(place)) == sorted({"hooks.jsonl", *before} & set(os.listdir(place)))
    os.chmod(place, 0o755)


def test_opencode_before_its_database_kept_files(tmp_path: Path) -> None:
    place = copied("opencode", tmp_path)
    storage = tmp_path / "files" / "storage"
    with sqlite3.connect(place / "opencode.db") as db:
        sid, directory = db.execute("SELECT id, directory FROM session").fetchone()
        _put(
            storage / "session/global" / f"{sid}.json", {"id": sid, "directory": directory, "title": "Say hi"}
        )
        for mid, data in db.execute("SELECT id, data FROM message"):
            _put(storage / "message" / sid / f"{mid}.json", json.loads(data))
        for pid, mid, data in db.execute("SELECT id, message_id, data FROM part"):
            _put(storage / "part" / mid / f"{pid}.json", json.loads(data))
    db.close()
    brought("opencode", tmp_path / "files")
    assert sorted(story(the_session())) == sorted(STORIES["opencode"])
    assert "imported  0 events" in brought("opencode", place)  # the same session, in its new home


def _put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize("damage", [b"", b"SQLite format 3\x00" + b"\xff" * 4096, b"no database"])
def test_a_store_that_cannot_be_read_is_told(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "opencode.db").write_bytes(damage)
    assert "unreadable file" in brought("opencode", tmp_path)
    assert Session.objects.count() == 0


def test_without_an_agent_all_that_are_found_come_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME", "XDG_DATA_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(CommandError, match="There are no transcripts below"):
        call_command("import_transcripts", stdout=StringIO())
    (tmp_path / "home/.local/share").mkdir(parents=True)
    copied("codex", tmp_path).rename(tmp_path / "home/.codex")
    copied("gemini", tmp_path).rename(tmp_path / "home/.gemini")
    copied("opencode", tmp_path).rename(tmp_path / "home/.local/share/opencode")
    copied("copilot", tmp_path).rename(tmp_path / "home/.copilot")
    copied("qwen-code", tmp_path).rename(tmp_path / "home/.qwen")
    copied("kilo", tmp_path).rename(tmp_path / "home/.local/share/kilo")
    out = StringIO()
    call_command("import_transcripts", stdout=out)
    assert [line.split()[1] for line in out.getvalue().splitlines() if line.startswith("agent")] == list(
        AGENTS
    )
    assert Session.objects.count() == len(AGENTS)
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(CommandError, match="elsewhere"):
        call_command("import_transcripts", "codex", stdout=StringIO())


def test_imported_commands_are_what_rules_are_tried_on(tmp_path: Path) -> None:
    from dashboard.rules.recorded import READER

    brought("codex", copied("codex", tmp_path))
    calls = READER.load_calls_in_event_range(10**9, 0)
    assert {one.about for one in calls if one.tool == "Bash"} == {"ls -la", "cat missing.txt"}
