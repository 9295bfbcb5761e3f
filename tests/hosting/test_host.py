"""Stdio servers behind the host: what passes is unharmed, who shares is kept apart, and what breaks is told."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from django.db import OperationalError

from coordinator.mcp.hosting import backend, process
from coordinator.mcp.servers.stdio_host import STARTED, WHEN_READY
from tests.hosting.conftest import Begun, Client, Hosted, message, messages
from tests.patience import until
from tests.processes import processes_naming

pytestmark = pytest.mark.one_engine


def test_a_session_begins_with_what_the_server_said(client: Begun, hosted: Hosted) -> None:
    answer = Client(hosted).begin()
    assert answer.json()["result"]["serverInfo"] == {"name": "double", "version": "1"}
    assert answer.json()["id"] == 0


@pytest.mark.parametrize("number", ["a", 7, 1.5, "\\u00e9"])
def test_an_answer_comes_under_its_own_id_as_the_server_wrote_it(client: Begun, number: Any) -> None:
    answer = client().post(message("tools/call", number, name="echo", arguments={"a": 1}))
    assert answer.json()["id"] == number
    assert '"odd": 1.5' in answer.text


def test_sessions_that_share_a_process_use_the_same_ids_without_harm(client: Begun) -> None:
    clients = [client() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda one: one[1].say("echo", 1, arguments={"n": one[0]}), enumerate(clients)))
    assert [f"'n': {n}" in words for n, words in enumerate(said)] == [True] * 8
    assert len({words.rsplit(" ", 1)[1] for words in said}) == 1


def test_progress_goes_to_who_asked_under_the_token_that_they_chose(client: Begun) -> None:
    first, second = client(), client()
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(one.call, "wait", 1, _meta={"progressToken": "same"}) for one in (first, second)]
        until(lambda: all(future.running() for future in asked))
        time.sleep(0.3)
        first.post(message("notifications/release"))
        told = [future.result() for future in asked]
    for one in told:
        assert [two.get("method") for two in one] == ["notifications/progress", None]
        assert one[0]["params"]["progressToken"] == "same"


def test_what_the_server_asks_goes_to_the_one_who_called_and_comes_back(client: Begun) -> None:
    caller = client()
    raw = message("tools/call", 5, name="ask")
    headers = {"mcp-session-id": caller.session}
    with caller.http.stream("POST", caller.path, content=raw, headers=headers) as answer:
        lines = answer.iter_lines()
        question = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
        assert question["method"] == "elicitation/create"
        told = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        assert caller.post(json.dumps(told)).status_code == 202
        last = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
    assert json.loads(last["result"]["content"][0]["text"]) == {"action": "accept"}


def test_another_session_cannot_answer_what_the_server_asked(client: Begun) -> None:
    caller, stranger = client(), client()
    headers = {"mcp-session-id": caller.session}
    with caller.http.stream(
        "POST", caller.path, content=message("tools/call", 5, name="ask"), headers=headers
    ) as answer:
        lines = answer.iter_lines()
        question = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
        told = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "stolen"}}
        stranger.post(json.dumps(told))
        caller.post(json.dumps(told | {"result": {"action": "mine"}}))
        last = next(line for line in lines if line.startswith("data: "))
    assert "mine" in last


def test_log_messages_reach_who_has_a_call_under_way(client: Begun) -> None:
    assert [one.get("method") for one in client().call("log")] == ["notifications/message", None]


def test_each_caller_has_a_process_of_its_own_where_the_row_says_so(hosted: Hosted) -> None:
    hosted.add("own", shared=False)
    said = []
    for caller in ("ada", "bob", "ada"):
        one = Client(hosted, "own", caller)
        one.begin()
        said.append(one.say("echo").rsplit(" ", 1)[1])
    assert said[0] == said[2] != said[1]


def test_its_environment_is_its_own_and_nothing_of_ours(hosted: Hosted, monkeypatch: Any) -> None:
    monkeypatch.setenv("SIGNALBOX_SECRET_KEY", "ours")
    hosted.add("s", TOKEN="theirs")
    one = Client(hosted)
    one.begin()
    found = json.loads(one.say("environment"))
    assert found["TOKEN"] == "theirs"
    assert found["HOME"] == str(hosted.folder / "s")
    assert set(found) <= {"TOKEN", "HOME", "PATH", "PWD", "TMPDIR", "LANG", "LC_CTYPE"}


def test_a_server_that_dies_in_a_call_is_told_with_its_last_words_and_started_again(
    client: Begun, hosted: Hosted
) -> None:
    one = client()
    (answer,) = one.call("die")
    assert answer["id"] == 1
    assert "ended with status 3" in answer["error"]["message"]
    assert "I cannot go on" in answer["error"]["message"]
    assert one.say("echo").startswith("echo {} 1 ")  # the same session, a new process
    assert [standing.state for _, _, standing in hosted.told] == ["running", "failed", "running"]


def test_one_that_dies_again_and_again_is_tried_again_with_patience(client: Begun) -> None:
    one = client()
    for _ in range(2):
        one.call("die")
    answer = one.post(message("tools/call", 1, name="echo"))
    assert answer.status_code == 503
    assert "The next try is in" in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) >= 1


def test_one_that_floods_is_ended_and_says_so(client: Begun) -> None:
    (answer,) = client().call("flood")
    assert "more than 16 MB" in answer["error"]["message"]


def test_one_that_cannot_be_started_says_why(hosted: Hosted) -> None:
    hosted.add("none", "/no/such/program")
    answer = Client(hosted, "none").begin()
    assert answer.status_code == 503
    assert "cannot be started: No such file or directory" in answer.json()["detail"]


def test_one_that_never_answers_is_ended_in_time(hosted: Hosted, monkeypatch: Any) -> None:
    monkeypatch.setattr(backend, "GREETS_WITHIN", 0.5)
    hosted.add("mute", "sleep", "60")
    answer = Client(hosted, "mute").begin()
    assert answer.status_code == 503
    assert "did not answer within" in answer.json()["detail"]


def test_a_client_that_goes_away_is_told_to_the_server_as_a_cancellation(
    client: Begun, hosted: Hosted
) -> None:
    one = client()
    headers = {"mcp-session-id": one.session}
    with pytest.raises(httpx.ReadTimeout):
        one.http.post(one.path, content=message("tools/call", 9, name="wait"), headers=headers, timeout=0.5)
    until((hosted.folder / "s" / "cancelled").exists)


def test_a_clients_own_cancellation_names_the_servers_id(client: Begun, hosted: Hosted) -> None:
    one = client()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(one.post, message("tools/call", "mine", name="wait"))
        until(asked.running)
        time.sleep(0.3)
        one.post(message("notifications/cancelled", requestId="mine"))
        assert asked.result().status_code == 202
    until((hosted.folder / "s" / "cancelled").exists)
    assert (hosted.folder / "s" / "cancelled").read_text().strip().isdigit()


def test_one_that_nobody_uses_is_stopped_and_its_sessions_start_it_again(
    client: Begun, hosted: Hosted
) -> None:
    one = client()
    before, pid = one.say("echo"), hosted.pid()
    assert hosted.pool is not None
    hosted.pool._idle = -1
    hosted.run(hosted.pool.stop_idle_backends())
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    assert one.say("echo").rsplit(" ", 1)[1] != before.rsplit(" ", 1)[1]


def test_the_host_is_needed_as_long_as_a_client_has_a_session(client: Begun, hosted: Hosted) -> None:
    one = client()
    pid = hosted.pid()
    assert hosted.pool is not None
    hosted.pool._idle = -1
    hosted.run(hosted.pool.stop_idle_backends())
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    assert hosted.pool.is_any_backend_in_use
    one.http.delete(one.path, headers={"mcp-session-id": one.session})
    assert not hosted.pool.is_any_backend_in_use


def test_changed_settings_start_it_anew(client: Begun, hosted: Hosted) -> None:
    one = client()
    hosted.add("s", TOKEN="new")
    until(lambda: json.loads(one.say("environment")).get("TOKEN") == "new")


def test_a_session_that_has_ended_is_not_found(client: Begun) -> None:
    one = client()
    assert one.http.delete(one.path, headers={"mcp-session-id": one.session}).status_code == 204
    assert one.post(message("tools/list", 1)).status_code == 404


def test_a_message_of_the_new_era_needs_no_session(hosted: Hosted) -> None:
    hosted.add("s")
    (answer,) = messages(Client(hosted).post(message("server/discover", 3)))
    assert (answer["id"], answer["result"]) == (3, {"method": "server/discover"})


@pytest.mark.parametrize("raw", ["", "[]", "nonsense", '"text"'])
def test_what_is_no_message_is_refused(client: Begun, raw: str) -> None:
    assert client().post(raw).status_code == 400


def test_children_of_a_server_end_with_it(hosted: Hosted) -> None:
    token = f"child-of-{os.getpid()}"
    child = f"setsid sh -c 'sleep 300; : {token}' < /dev/null & touch child; exec cat > /dev/null"
    hosted.add("parent", "sh", "-c", child)
    threading.Thread(target=Client(hosted, "parent").begin, daemon=True).start()
    until((hosted.folder / "parent" / "child").exists)
    assert hosted.pool is not None
    hosted.run(hosted.pool.close())
    until(lambda: not processes_naming(token))


@pytest.mark.parametrize("askers", [1, 2])
def test_one_that_asks_without_end_is_stopped_and_told_why(
    client: Begun, askers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "MOST_QUESTIONS" if askers == 1 else "MAX_BACKGROUND_TASKS", 20)
    one, other = client(), client()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.call, "wait") if askers == 2 else None
        until(lambda: waiting is None or waiting.running())
        answer = one.call("ask_on")[-1]
        assert waiting is None or "error" in waiting.result()[-1]
    words = "sent more requests than anybody answers" if askers == 1 else "does not read its input"
    assert words in answer["error"]["message"]


def test_a_caller_with_many_sessions_loses_its_own_oldest(
    hosted: Hosted, client: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "MOST_SESSIONS", 4)
    first = client()
    greedy = [Client(hosted) for _ in range(5)]
    for one in greedy:
        one.http.headers["x-signalbox-asker"] = "greedy"
        one.begin()
    statuses = [one.post(message("ping", 1)).status_code for one in (first, *greedy)]
    assert statuses == [200, 404, 404, 200, 200, 200]


def test_a_call_that_wants_a_ready_server_is_sent_only_once_it_was_started(
    client: Begun, hosted: Hosted
) -> None:
    one = client()
    one.say("echo")
    first = hosted.pid()
    assert hosted.pool is not None
    (served,) = hosted.pool._backends.values()
    os.kill(first, signal.SIGKILL)
    call = message("tools/call", 2, name="echo")
    until(lambda: not served.is_running)
    assert one.post(call, **{WHEN_READY: "1"}).status_code == STARTED
    words = one.say("echo", 3)
    assert " 1 " in words, "the call before it went in, too"
    assert one.post(call, **{WHEN_READY: "1"}).status_code == 200


def test_a_caller_s_own_server_is_forgotten_once_it_was_stopped_and_nobody_has_a_session(
    hosted: Hosted, monkeypatch: Any
) -> None:
    hosted.add("own", shared=False)
    assert hosted.pool is not None
    for caller in ("ada", "bob"):
        one = Client(hosted, "own", caller)
        one.begin()
        if caller == "ada":
            one.http.delete(one.path, headers={"mcp-session-id": one.session})
    monkeypatch.setattr(hosted.pool, "_idle", -1.0)
    for _ in range(2):  # stopped, then forgotten
        hosted.run(hosted.pool.stop_idle_backends())
    until(lambda: hosted.run(hosted.pool.stop_idle_backends()) is None and len(hosted.pool._backends) == 1)
    assert one.say("echo", 2), "the session of the other stands"


def test_a_server_that_is_switched_off_stops_for_all_its_callers_and_the_rest_is_looked_after(
    hosted: Hosted, monkeypatch: Any
) -> None:
    hosted.add("own", shared=False)
    pool = hosted.pool
    assert pool is not None
    for caller in ("ada", "bob"):
        one = Client(hosted, "own", caller)
        one.begin()
        one.http.delete(one.path, headers={"mcp-session-id": one.session})
    own, bobs = pool._backends.values()
    until(lambda: own.is_idle and bobs.is_idle)
    hosted.run(bobs.stop_stdio_process())
    bobs.used_at = -1.0  # for long, so that it is about to be forgotten
    hosted.configurations.clear()
    pool._read.clear()
    hosted.run(pool.stop_idle_backends())
    assert (own.is_running, pool._backends) == (False, {})


def test_a_server_goes_on_while_the_database_is_away(client: Begun, hosted: Hosted, monkeypatch: Any) -> None:
    one = client()
    before = one.say("echo")
    pool = hosted.pool
    assert pool is not None

    async def away(server_id: str) -> Any:
        raise OperationalError("the server closed the connection")

    with monkeypatch.context() as patch:
        patch.setattr(pool, "_configure", away)
        pool._read.clear()
        hosted.run(pool.stop_idle_backends())
        refused = one.post(message("tools/call", 2, name="echo"))
        assert (refused.status_code, refused.headers.get("retry-after")) == (503, "2")
    assert one.say("echo", 3).rsplit(" ", 1)[1] == before.rsplit(" ", 1)[1], "it is the same process"


def test_a_server_that_ends_while_a_call_comes_in_is_not_started_for_it_unasked(
    client: Begun, hosted: Hosted
) -> None:
    one = client()
    one.say("echo")
    first = hosted.pid()
    assert hosted.pool is not None
    (served,) = hosted.pool._backends.values()
    call = message("tools/call", 2, name="echo").encode()

    def in_two_pieces() -> Iterator[bytes]:
        yield call[:10]
        os.kill(first, signal.SIGKILL)
        until(lambda: not served.is_running)
        yield call[10:]

    headers = {"mcp-session-id": one.session, WHEN_READY: "1"}
    assert one.http.post(one.path, content=in_two_pieces(), headers=headers).status_code == STARTED


def test_no_credential_of_a_server_is_in_its_last_words(hosted: Hosted) -> None:
    hosted.add("s", TOKEN="three plain words")
    one = Client(hosted)
    one.begin()
    for _ in range(2):
        (answer,) = one.call("die")
    refused = one.post(message("tools/call", 1, name="echo"))
    assert refused.status_code == 503
    for told in (answer["error"]["message"], refused.json()["detail"], str(hosted.told)):
        assert "I cannot go on" in told
        assert "three plain words" not in told


def test_what_looks_like_a_secret_is_masked_in_what_a_server_says_when_it_refuses(hosted: Hosted) -> None:
    token = "ghp_" + "a1B2" * 9
    error = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": f"{token} is no good"}})
    hosted.add("no", "sh", "-c", f"read line; echo '{error}'; cat > /dev/null")
    answer = Client(hosted, "no").begin()
    assert answer.status_code == 503
    assert "is no good" in answer.text
    assert token not in answer.text


def test_no_half_of_a_secret_is_kept() -> None:
    said = b"password hunter22\n" * 1_000
    assert process.cut_to_last_whole_words(said).startswith(b"password")
    assert len(process.cut_to_last_whole_words(said)) <= process.MAX_STDERR_BYTES
    assert process.cut_to_last_whole_words(said.replace(b"\n", b" ")).startswith((b"password", b"hunter22"))


def test_a_server_that_was_stopped_is_started_again_only_where_there_is_room(
    client: Begun, hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, number = client(), message("tools/call", 1, name="echo")
    hosted.add("other")
    assert hosted.pool is not None
    (served,) = hosted.pool._backends.values()
    hosted.run(served.stop_stdio_process())
    monkeypatch.setattr("coordinator.mcp.hosting.pool.MOST_PROCESSES", 1)
    client("other")
    refused = one.post(number)
    assert refused.status_code == 503
    assert "1 server processes are already running" in refused.text
    monkeypatch.setattr("coordinator.mcp.hosting.pool.MOST_PROCESSES", 2)
    assert one.post(number).status_code == 200
