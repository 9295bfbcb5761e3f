"""The work that goes on: programs that post, follow, order, run, ask, call tools and send files."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from tests.bench.servers.ledger import Load
from tests.gateway.agents import AGENT, GatewayRefused, Wire, text_of
from tests.live.connections import message
from tests.runner.driving import runner_apart
from tests.served import KEYS

SESSION = "ses_bench0000000"
ASK = "/api/permission-requests"
HOST = "bench-driven"  # where the runner's program says that it is
LEFT_EVERY = 20  # of so many questions nobody decides one


def plan(number: int, nth: int) -> str:
    """Return the name of a question, which says what people are to decide: yes, no, or nothing at all (left)."""
    word = "left" if nth % LEFT_EVERY == 2 else random.choice(("yes", "no"))
    return f"{word}-{number}-{nth}"


def post_events(load: Load, number: int) -> None:
    """Post events one by one, each until it is acknowledged."""
    client = load.client()
    for nth in count():
        if load.enough.wait(0.05):
            return
        text, began = f"e{number}-{nth}", time.monotonic()
        send = partial(
            client.post, f"/sessions/{SESSION}/events", json=message(SESSION, text),
            headers={"Idempotency-Key": f"{SESSION}-{text}"},
        )  # fmt: skip
        if load.insist(send, 201):
            load.ledger.acknowledged.append(text)
            load.ledger.slowest = max(load.ledger.slowest, time.monotonic() - began)


def follow(load: Load, heard: list[str]) -> None:
    """Follow a session's stream, and go on where it broke."""
    client, last = load.client(), ""
    while not load.over.is_set():
        headers = {"Last-Event-ID": last} if last else {}
        path = f"/sse/sessions?session_id={SESSION}&include_init=false"
        try:
            with client.stream("GET", path, headers=headers) as answer:
                if answer.status_code != 200:
                    answer.read()
                if load.ledger.judge(answer, 200):
                    last = listen(load, answer, heard, last)
        except httpx.HTTPError as problem:
            load.ledger.broke(problem)
        load.over.wait(0.3)


def listen(load: Load, answer: httpx.Response, heard: list[str], last: str) -> str:
    """Read a stream until it ends, or breaks, or all is over; return the id of what was heard whole last."""
    told: dict[str, str] = {}
    with suppress(httpx.HTTPError):  # a stream may break at any time
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name:
                told[name] = value
                continue
            if told.get("event") == "event":
                heard.append(json.loads(told["data"])["data"]["content"][0]["text"])
            elif told.get("event") == "reset":
                load.ledger.strange.append("a stream was told to load afresh")
            last, told = told.get("id", last), {}
            if load.over.is_set():
                break
    return last


def be_heard(load: Load) -> None:
    """Post until every stream has heard something: from then on each knows where it was when it breaks."""
    client = load.client()
    for nth in count():
        body = message(SESSION, f"first-{nth}")
        load.insist(partial(client.post, f"/sessions/{SESSION}/events", json=body), 201)
        if all(load.ledger.heard):
            return
        time.sleep(0.3)


def order_runs(load: Load) -> None:
    """Order a run now and then. A repeated order is another run: one whose answer was lost is left as it is."""
    client = load.client()
    order = {
        "type": "start_session", "prompt": "Work",
        "additional_demands": {"executor_profile": "bench"},
    }  # fmt: skip
    while not load.enough.wait(0.7):
        if answer := load.once(partial(client.post, "/runs", json=order), 201):
            load.ledger.ordered.append(answer.json()["run_id"])


def run_runs(load: Load, number: int) -> None:
    """Take runs and report them started and completed, as a runner does."""
    client = load.client()
    who = {"hostname": f"host{number}", "project_dir": "/work", "executor_profile": "bench"}
    registered = load.insist(partial(client.post, "/runner/register", json=who), 200)
    runner_id = registered.json()["runner_id"] if registered else ""
    while not load.over.is_set():
        answer = load.insist(partial(client.get, "/runner/runs", params={"runner_id": runner_id}), 200, 204)
        run = answer.json().get("run") if answer is not None and answer.status_code == 200 else None
        if run is None:
            continue
        load.ledger.taken.append(run["run_id"])
        for report, more in (("started", {}), ("completed", {"status": "success"})):
            body = {"runner_id": runner_id, **more}
            load.insist(partial(client.post, f"/runner/runs/{run['run_id']}/{report}", json=body), 200)


@contextmanager
def runner(load: Load, folder: Path) -> Iterator[None]:
    """Run the runner's own program, with agents that do what their prompt says."""
    work = folder / "runner" / "work"
    work.mkdir(parents=True)
    log = folder / "runner.log"
    with runner_apart(load.url, work, HOST, log=log, patience=120, SIGNALBOX_KEY=KEYS["runner"]):
        yield


def drive(load: Load, number: int, folder: Path) -> None:
    """Have an agent work, ask a person and say more, in one session turn after turn.

    An order whose answer was lost may have become a run; then the session is left, and another begun.
    """
    client, session, expected = load.client(), "", ""
    for nth in count():
        if load.enough.wait(0.5):
            return
        name = plan(number, nth).replace("left-", "yes-")  # a turn ends only once somebody has decided
        order: dict[str, Any] = {
            "type": "resume_session" if session else "start_session",
            "parameters": {"prompt": f"do: ask {name}; count 20", "agent": "scripted"},
            "project_dir": str(folder / "runner" / "work"),
            "additional_demands": {"hostname": HOST},
        } | ({"session_id": session} if session else {})
        answer = load.once(partial(client.post, "/runs", json=order), 201)
        if answer is None:
            load.ledger.driven.pop(session, None)
            session, expected = "", ""
            continue
        session = answer.json()["session_id"]
        expected += f"{name}: {name.partition('-')[0]}" + "".join(f"{one} " for one in range(20))
        load.ledger.driven[session] = expected
        ended(load, client, answer.json()["run_id"])


def ended(load: Load, client: httpx.Client, run_id: str) -> None:
    """Wait until a run is at its end."""
    while not load.over.is_set():
        answer = load.insist(partial(client.get, f"/runs/{run_id}"), 200)
        if answer is None or answer.json()["status"] in {"completed", "failed", "stopped"}:
            return
        load.over.wait(0.3)


def ask(load: Load, number: int) -> None:
    """Ask for permission and wait for the verdict, again and again."""
    client = load.client()
    for nth in count():
        if load.enough.wait(0.2):
            return
        name = plan(number, nth)
        body = {
            "plugin_id": "bench", "permission_type": "NetworkAccess", "justification": "To measure",
            "target_resource": name,
        }  # fmt: skip
        asked = load.insist(partial(client.post, ASK, json=body), 200, 201)
        if asked is None:
            return
        request_id = asked.json()["request_id"]
        if name.startswith("left"):
            load.ledger.left.append(request_id)
            continue
        load.ledger.asked.append(request_id)
        while request_id not in load.ledger.told:
            answer = load.insist(partial(client.get, f"{ASK}/{request_id}/wait?timeout=20"), 200)
            if answer is None:
                return
            if answer.json()["status"] != "pending":
                load.ledger.told[request_id] = (answer.json()["status"], answer.json()["allowed"])


def call_tools(load: Load, number: int, *, stateless: bool) -> None:
    """Call a tool that waits for a person, each call until it is told what became of it."""
    wire = Wire(load.database, stateless=stateless)
    wire.http.base_url = httpx.URL(load.url)
    for nth in count():
        if load.enough.wait(0.5):
            return
        path = plan(number, nth)
        left = path.startswith("left")
        if not left:
            load.ledger.called[path] = ""
        until = time.monotonic() + 3 if left else float("inf")
        while not load.over.is_set() and time.monotonic() < until:
            if became := call(load, wire, path, patience=3.0 if left else 40.0):
                load.ledger.called[path] = became
                break
            load.over.wait(0.3)


def call(load: Load, wire: Wire, path: str, *, patience: float) -> str:
    """Call once, and return what is said of the call where that is the end of it, else nothing."""
    try:
        if not wire.stateless and wire.session is None:
            wire.initialize()
        sent = wire.message("tools/call", {"name": "write", "arguments": {"path": path}})
        answer = wire.http.post(wire.path, json=sent, headers=wire.headers_for(sent), timeout=patience)
        if load.ledger.judge(answer, 200):
            return end_of(wire.response(answer))
    except httpx.ReadTimeout as problem:
        if patience > 3:
            load.ledger.broke(problem)
    except httpx.HTTPError as problem:
        load.ledger.broke(problem)
    except (GatewayRefused, IndexError, json.JSONDecodeError) as problem:  # begun elsewhere, or cut off
        load.ledger.answers[type(problem).__name__] += 1
    return ""


def end_of(response: dict[str, Any]) -> str:
    """Return what a response says of its call: it ran, may have run or was denied; nothing where it goes on."""
    result = response.get("result", {})
    said = text_of(result) if result.get("content") else ""
    ends = said.startswith("wrote") or "may have run" in said or "A person denied" in said
    return said if ends else ""


def send_files(load: Load) -> None:
    """Send messages with files that are too large for the database."""
    client = load.client()
    while not load.enough.wait(1.0):
        data = random.randbytes(random.choice((80_000, 600_000)))
        sent = {"data": {"text": "A file"}, "files": {"files": ("f.bin", data)}}
        if answer := load.once(partial(client.post, f"/api/chat/{AGENT}/messages", **sent), 200):  # type: ignore[arg-type]
            load.ledger.files[answer.json()["id"]] = hashlib.sha256(data).hexdigest()
