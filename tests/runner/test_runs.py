"""A run, from the order to the report: what the server is told of it, and what becomes of the agent."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from coordinator.runner import conversation, session, worktrees
from coordinator.runner import pending_updates as held_updates
from coordinator.runner.outbox import OutboxCapacity
from tests.patience import PATIENCE, until
from tests.processes import is_gone
from tests.runner.driving import KEY, runner_here
from tests.runner.small_coordinator import SmallCoordinator

pytestmark = pytest.mark.one_engine


def test_a_session_is_started_told_more_and_kept(coordinator: SmallCoordinator, work: Path) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r1", "do: pid; count 40")
        _, what, report = coordinator.report("r1")
        assert (what, report["session_status"]) == ("completed", "idle")
        coordinator.order("s", "r2", "hello", kind="resume_session")
        coordinator.report("r2")
        said = coordinator.said("s")
    assert said.endswith("".join(f"{n} " for n in range(40)) + "I was told: hello")
    assert said.count("pid") == 1, "the second prompt went to the same process"
    kinds = [one["update"]["sessionUpdate"] for one in coordinator.updates["s"]]
    assert kinds[:2] == ["signalbox/agent", "signalbox/turn_started"]
    assert kinds.count("signalbox/turn_ended") == 2
    assert len(coordinator.kinds("s", "agent_message_chunk")) < 20, (
        "chunks that come together are sent together"
    )
    agent = coordinator.kinds("s", "signalbox/agent")[0]
    assert (agent["agent"], agent["agentInfo"]["version"]) == ("scripted", "7")
    assert coordinator.bound["s"]["executor_session_id"] == agent["agentSessionId"]
    ended = coordinator.kinds("s", "signalbox/turn_ended")[0]
    assert (ended["runId"], ended["stopReason"], ended["usage"]["totalTokens"]) == ("r1", "end_turn", 15)
    assert coordinator.registered["offers"]["agents"] == [
        {"name": "scripted", "title": "Scripted", "version": "7"}
    ]
    assert coordinator.registered["executor"]["lifecycle"] == "persistent"
    assert [report[1] for report in coordinator.reports if report[0] == "r1"] == ["started", "completed"]
    assert coordinator.statuses == [("s", "stopped")], "who leaves ends what it kept"
    assert coordinator.left
    assert is_gone(int(said.split()[1]))


def test_images_and_unknown_words_of_the_agent_are_kept(coordinator: SmallCoordinator, work: Path) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "look", images=[{"mimeType": "image/png", "data": "aGk="}])
        coordinator.report("r")
        coordinator.order("s", "r2", "do: unknown hello", kind="resume_session")
        coordinator.report("r2")
    started = coordinator.kinds("s", "signalbox/turn_started")[0]
    assert started["prompt"][1] == {"type": "image", "mimeType": "image/png", "data": "aGk="}
    assert "look [image]" in coordinator.said("s")
    assert '"code": -32601' in coordinator.said("s")
    unknown = [json.loads(one["message"]) for one in coordinator.kinds("s", "signalbox/unknown")]
    assert [one["method"] for one in unknown] == ["_news", "no/such_method"]


def test_an_agent_has_a_bounded_environment_and_never_our_key(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: env")
        coordinator.report("r")
    env = json.loads(coordinator.said("s"))
    assert KEY not in json.dumps(env)
    assert "OTHER" not in env
    assert env["SIGNALBOX_SESSION"] == "s"
    assert env["HOME"] == str(work)


def test_files_and_terminals_stay_in_the_allowed_directories(
    coordinator: SmallCoordinator, work: Path
) -> None:
    outside = work.parent / "outside.txt"
    outside.write_text("secret")
    (work / "link").symlink_to(work.parent)
    steps = [
        f"write {work}/new/a.txt",
        f"read {work}/new/a.txt",
        f"read {work}/link/outside.txt",
        f"write {outside}",
    ]
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: " + "; ".join(steps) + "; terminal pwd && echo $SIGNALBOX_KEY")
        coordinator.report("r")
        coordinator.order("t", "r2", "hi", project_dir=str(work.parent))
        _, what, report = coordinator.report("r2")
    said = coordinator.said("s")
    assert '"content": "two\\n"' in said
    assert "secret" not in said
    assert said.count("not in a directory that this runner is allowed") == 2
    assert outside.read_text() == "secret"
    assert json.dumps({"output": f"{work}\n\n", "truncated": False})[1:-2] in said
    assert coordinator.kinds("s", "signalbox/terminal")[-1]["toolCallId"] == "t"
    assert what == "failed"
    assert "not in a directory that this runner is allowed" in report["error"]


@pytest.mark.parametrize(
    ("agent", "answer"),
    [("", '"code": -32002, "message": "Resource not found"'), ("gemini", '{"content": ""}')],
)
def test_a_missing_file_is_an_error_but_empty_for_an_agent_that_reads_before_it_creates(
    coordinator: SmallCoordinator, work: Path, agent: str, answer: str
) -> None:
    with runner_here(coordinator.url, work, agent):
        coordinator.order(
            "s", "r", f"do: read {work}/missing.txt; write {work}/missing.txt; read {work}/missing.txt"
        )
        coordinator.report("r")
    said = coordinator.said("s")
    assert answer in said
    assert '"content": "two\\n"' in said


def test_a_mode_in_which_the_agent_reviews_itself_is_left_unless_somebody_chose_it(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(coordinator.url, work, "modes"):
        coordinator.order("s", "r", "do: mode")
        coordinator.order("t", "r2", "do: mode", mode="auto")
        coordinator.report("r")
        coordinator.report("r2")
        coordinator.tell({"commands": [{"id": "c", "session_id": "s", "set_mode": "auto"}]})
        fast = {"configId": "speed", "value": "fast"}
        coordinator.tell({"commands": [{"id": "d", "session_id": "s", "set_config": fast}]})
        coordinator.wait(lambda: len(coordinator.kinds("s", "signalbox/command_done")) == 2)
        coordinator.order("s", "r3", "do: mode", kind="resume_session")
        coordinator.report("r3")
    assert coordinator.said("s") == "mode defaultmode auto"
    assert coordinator.said("t") == "mode auto"
    assert coordinator.kinds("s", "config_option_update")[0]["configOptions"][0]["currentValue"] == "fast"
    assert coordinator.kinds("s", "signalbox/agent")[0]["modes"]["currentModeId"] == "default"


def test_a_turn_is_stopped_and_its_agent_kept_then_the_session_is_ended(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: pid; hang")
        coordinator.wait(lambda: "hanging" in coordinator.said("s"))
        coordinator.tell({"cancel_runs": ["r"]})
        assert coordinator.report("r")[2]["session_status"] == "idle"
        assert coordinator.kinds("s", "signalbox/turn_ended")[0]["stopReason"] == "cancelled"
        coordinator.order("s", "r2", "do: hang", kind="resume_session")
        coordinator.wait(lambda: coordinator.said("s").count("hanging") == 2)
        coordinator.tell({"stop_runs": ["r2"], "stop_sessions": ["s"]})
        assert coordinator.report("r2")[1] == "stopped"
        assert is_gone(int(coordinator.said("s").split()[1]))


@pytest.mark.parametrize("keeps_commands", [True, False])
def test_a_stopped_turn_leaves_nothing_behind_of_an_agent_that_keeps_its_commands(
    coordinator: SmallCoordinator, work: Path, keeps_commands: bool
) -> None:
    with runner_here(coordinator.url, work, keeps_commands=keeps_commands):
        coordinator.order("s", "r0", "do: pid; hang")
        coordinator.wait(lambda: "hanging" in coordinator.said("s"))
        coordinator.tell({"cancel_runs": ["r0"]})
        assert coordinator.report("r0")[2]["session_status"] == "idle"
        agent = int(coordinator.said("s").split()[1].removesuffix("hanging"))
        assert not is_gone(agent), "it left nothing, so it is kept"
        coordinator.order("s", "r", "do: orphan; hang", kind="resume_session")
        coordinator.wait(lambda: coordinator.said("s").count("hanging") == 2)
        orphan = int(coordinator.said("s").partition("orphan ")[2].split()[0].removesuffix("hanging"))
        coordinator.tell({"cancel_runs": ["r"]})
        assert coordinator.report("r")[2]["session_status"] == "idle"
        if keeps_commands:  # killed; a busy machine lets them end a moment later
            until(lambda: is_gone(orphan) and is_gone(agent), "something of it is left")
        assert [is_gone(orphan), is_gone(agent)] == [keeps_commands] * 2
        assert [one["runId"] for one in coordinator.kinds("s", "signalbox/turn_ended")] == ["r0", "r"]
        coordinator.order("s", "r2", "hello", kind="resume_session")
        assert coordinator.report("r2")[1] == "completed"
    assert coordinator.statuses == [("s", "stopped")]


def test_a_conversation_that_may_open_once_a_minute_waits_for_the_next_one(
    coordinator: SmallCoordinator, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemini CLI empties a conversation that it opens a second time in the minute of the first."""
    clock = [1_795_387_157.0]  # 17 s past the minute
    monkeypatch.setattr(session, "time", SimpleNamespace(time=lambda: clock[0], monotonic=time.monotonic))
    with runner_here(coordinator.url, work, opens_once_a_minute=True):
        coordinator.order("s", "r", "do: die 3")
        assert coordinator.report("r")[1] == "failed"
        coordinator.order("s", "r2", "hello", kind="resume_session")
        coordinator.tell({"cancel_runs": ["r2"]})
        assert coordinator.report("r2")[1] == "stopped", "who waits can be stopped"
        coordinator.order("s", "r3", "hello", kind="resume_session")
        clock[0] += 43
        assert coordinator.report("r3")[1] == "completed"
    turns = coordinator.kinds("s", "signalbox/turn_started")
    assert [one["runId"] for one in turns] == ["r", "r3"]


def test_an_agent_that_hears_no_cancel_is_ended(
    coordinator: SmallCoordinator, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "TO_STOP", 0.2)
    with runner_here(coordinator.url, work, "deaf"):
        coordinator.order("s", "r", "do: hang")
        coordinator.wait(lambda: "hanging" in coordinator.said("s"))
        coordinator.tell({"cancel_runs": ["r"]})
        assert coordinator.report("r")[1:] == ("stopped", {"runner_id": "lnch_test", "signal": "SIGKILL"})


@pytest.mark.parametrize(
    ("how", "prompt", "words"),
    [
        ("", "do: die 3", "Scripted ended by itself, with exit code 3\n\nSegmentation of everything"),
        ("login", "hi", "Sign in to Scripted on the runner's machine first: use the agent's own program"),
        ("garbage", "hi", "It wrote 8 MB that are not the Agent Client Protocol"),
        ("mute", "hi", "Scripted did not answer initialize within"),
    ],
)
def test_an_agent_that_fails_is_a_clear_error_with_its_last_words(
    how: str,
    prompt: str,
    words: str,
    *,
    coordinator: SmallCoordinator,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if how == "mute":
        monkeypatch.setattr(conversation, "OPENING", 0.3)
    with runner_here(coordinator.url, work, how):
        coordinator.order("s", "r", prompt)
        _, what, report = coordinator.report("r")
    assert what == "failed"
    assert words in report["error"]
    failed = coordinator.kinds("s", "signalbox/agent_failed")[0]
    assert failed["reason"].split("\n")[0] in report["error"]
    if how == "garbage":
        assert "Welcome to the agent!" in [
            one["message"] for one in coordinator.kinds("s", "signalbox/unknown")
        ]


def test_a_silent_agent_is_ended_but_not_while_it_works_or_waits(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(
        coordinator.url, work, silence=1.5
    ):  # longer than a busy machine keeps an agent from speaking
        coordinator.order("s", "r", "do: ask wait; hang")
        coordinator.wait(lambda: coordinator.questions)
        coordinator.order("t", "r2", "do: terminal sleep 2")
        assert coordinator.report("r2")[1] == "completed"
        assert not [one for one in coordinator.reports if one[:2] == ("r", "failed")]
        coordinator.verdicts["wait"] = {"outcome": {"optionId": "yes"}}
        assert "said nothing" in coordinator.report("r")[2]["error"]


def test_a_hundred_megabytes_of_stderr_are_no_matter(coordinator: SmallCoordinator, work: Path) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: flood 100; say done")
        assert coordinator.report("r")[1] == "completed"
    assert coordinator.said("s") == "done"


def test_an_agent_that_is_missing_says_how_to_get_it(coordinator: SmallCoordinator, work: Path) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "hi", agent="codex")
        assert "To get it: npm install codex" in coordinator.report("r")[2]["error"]
        coordinator.order("s", "r2", "")
        assert coordinator.report("r2")[2]["error"] == "The run has no prompt."


def test_a_session_is_forked(coordinator: SmallCoordinator, work: Path) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "hi")
        coordinator.report("r")
        coordinator.order("t", "r2", "hi", fork_of="s")
        coordinator.report("r2")
    earlier = coordinator.bound["s"]["executor_session_id"]
    assert coordinator.bound["t"]["executor_session_id"] == f"fork-of-{earlier}"


def test_an_agent_speaks_neither_as_its_runner_nor_as_a_person(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order(
            "s",
            "r",
            "do: pretend signalbox/turn_ended; pretend signalbox/command_done; pretend user_message_chunk",
        )
        coordinator.report("r")
    assert [one["stopReason"] for one in coordinator.kinds("s", "signalbox/turn_ended")] == ["end_turn"]
    assert not coordinator.kinds("s", "signalbox/command_done")
    assert not coordinator.kinds("s", "user_message_chunk")
    unknown = [json.loads(one["message"]) for one in coordinator.kinds("s", "signalbox/unknown")]
    assert [one["params"]["update"]["sessionUpdate"] for one in unknown] == [
        "signalbox/turn_ended",
        "signalbox/command_done",
    ]


def test_a_work_tree_that_only_the_server_names_is_not_worked_in(
    coordinator: SmallCoordinator, work: Path
) -> None:
    elsewhere = work.parent / "elsewhere"
    elsewhere.mkdir()
    run = {"run_id": "r", "session_id": "s", "type": "start_session", "parameters": {"prompt": "do: pid"}}
    with runner_here(coordinator.url, work):
        coordinator.tell({"run": {**run, "driven": {"worktree": str(elsewhere)}}})
        _, what, report = coordinator.report("r")
    assert what == "failed"
    assert "work tree is not on this machine any more" in report["error"]


def test_a_command_that_is_told_again_is_done_once(
    coordinator: SmallCoordinator, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Event(), threading.Event()

    async def removed(*_words: object, **_more: object) -> None:
        assert not began.is_set(), "it was done twice"
        began.set()
        await asyncio.to_thread(may_end.wait, 20)

    monkeypatch.setattr(worktrees, "remove_worktree", removed)
    command = {"id": "c", "session_id": "s", "remove_worktree": "discard"}
    with runner_here(coordinator.url, work):
        coordinator.tell({"commands": [command]})
        assert began.wait(PATIENCE)
        coordinator.tell({"commands": [command], "stop_sessions": ["s"]})
        coordinator.wait(lambda: not coordinator.news)
        may_end.set()
        coordinator.wait(lambda: coordinator.kinds("s", "signalbox/command_done"))
        coordinator.tell({"commands": [command]})
        coordinator.order("s", "r", "hello")
        coordinator.report("r")
    assert coordinator.kinds("s", "signalbox/command_done") == [
        {"sessionUpdate": "signalbox/command_done", "id": "c"}
    ]


def test_what_an_agent_says_before_it_begins_is_bounded(coordinator: SmallCoordinator, work: Path) -> None:
    with runner_here(coordinator.url, work, "chatty"):
        coordinator.order("s", "r", "hello")
        coordinator.report("r")
    kinds = [one["update"]["sessionUpdate"] for one in coordinator.updates["s"]]
    assert kinds[0] == "signalbox/agent"
    assert 0 < kinds.count("tool_call") < 20_000
    assert [one["message"] for one in coordinator.kinds("s", "signalbox/unknown")] == [held_updates.TOO_MUCH]
    room = OutboxCapacity()
    held = held_updates.PendingUpdates(room)
    held.add_update_or_cut_note({"sessionUpdate": "plan"})
    assert room._left < OutboxCapacity()._left
    assert held.take_out_pending_updates() == [{"sessionUpdate": "plan"}]
    assert room._left == OutboxCapacity()._left
