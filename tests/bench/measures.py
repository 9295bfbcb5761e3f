"""The measurements, one function each. Each returns rows for the table: what, figures by name."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.bench import machine
from tests.bench.streams import Streams, probe
from tests.bench.wire import Result, Target, load, paced, percentile, read_answer

TEXT = (
    "An agent's answer of ordinary length, with a few sentences in it, so that a row is worth its name. " * 2
)
BATCH = 500
# Seconds over which the processor's time of an idle server is measured: its jobs come now and then.
IDLE_FOR = 20.0


@dataclass
class Bench:
    """One run of the kit: the server, how long each load lasts, and the rows measured so far."""

    target: Target
    seconds: float
    pids: list[int] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, what: str, **figures: Any) -> None:
        """Keep a row, and show that there is progress."""
        self.rows.append({"what": what} | {name: _short(value) for name, value in figures.items()})
        print(
            f"  {what}: " + ", ".join(f"{k} {v}" for k, v in self.rows[-1].items() if k != "what"), flush=True
        )

    def new_session(self) -> str:
        """Start a session by an order for it, as any client does."""
        status, answer = self.target.call("POST", "/runs", {"type": "start_session", "prompt": "bench"})
        assert status == 201, f"POST /runs answered {status}: {answer}"
        self.target.call("POST", f"/runs/{answer['run_id']}/stop")
        return str(answer["session_id"])

    def event(self, session_id: str) -> bytes:
        """Return the request of one ordinary event."""
        return self.target.request("POST", f"/sessions/{session_id}/events", event_body(session_id))


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return round(value) if abs(value) >= 1000 else float(f"{value:.3g}")
    return value


def in_cell(value: float) -> str:
    """Return a figure as the tables show it that compare servers."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def event_body(session_id: str) -> bytes:
    """Return the JSON of one ordinary event."""
    event = {
        "event_type": "message",
        "session_id": session_id,
        "timestamp": "2026-01-01T00:00:00.000000+00:00",
        "role": "assistant",
        "content": [{"type": "text", "text": TEXT}],
    }
    return json.dumps(event).encode()


def figures(result: Result) -> dict[str, Any]:
    """Return the usual figures of a load."""
    return {
        "per_second": result.rate(),
        "p50_ms": result.percentile(0.5),
        "p99_ms": result.percentile(0.99),
        "max_ms": result.percentile(1.0),
        "errors": result.errors,
    }


def single_events(bench: Bench) -> None:
    """One event a request, at 1, 8 and 32 connections."""
    request = bench.event(bench.new_session())
    load(bench.target, lambda _: request, connections=4, seconds=1)  # warm
    for connections in (1, 8, 32):
        result = load(bench.target, lambda _: request, connections=connections, seconds=bench.seconds)
        bench.add(f"single events, {connections} connections", **figures(result))


def batches(bench: Bench) -> None:
    """500 events a request as NDJSON, on 2 connections; a server without batches gets no row."""
    body = b"\n".join([event_body(bench.new_session())] * BATCH)
    request = bench.target.request("POST", "/api/events", body, "Content-Type: application/x-ndjson")
    result = load(bench.target, lambda _: request, connections=2, seconds=bench.seconds)
    if result.latencies:
        bench.add("batches of 500, 2 connections", **figures(result) | {"per_second": result.rate(BATCH)})


def idle_streams(bench: Bench) -> None:
    """What 1,000 streams cost that are told nothing. Before any load: what a load leaves to do is not theirs.

    Memory is what the processes have alone: a share of a page depends on how many processes have it, not on streams.
    """
    if not bench.pids:
        return
    before = settled_memory(bench)
    with opened(bench, 1000) as streams:
        cost = (machine.own_memory_kb(bench.pids) - before) / max(streams.open, 1)
        bench.add("memory of an idle stream", kb=cost)
        bench.add("idle with 1,000 streams", cpu_percent=machine.cpu_share(bench.pids, IDLE_FOR))


def settled_memory(bench: Bench) -> int:
    """Return the server's memory in KB once it stays the same: a server that has just begun still grows by itself."""
    with opened(bench, 50):
        pass
    known = [machine.own_memory_kb(bench.pids)]
    while len(known) < 60:
        time.sleep(1)
        known.append(machine.own_memory_kb(bench.pids))
        if len(known) > 20 and max(known[-10:]) - min(known[-10:]) < 300:
            break
    return known[-1]


def quiet_streams(bench: Bench) -> None:
    """How late an event reaches 1, 100 and 1,000 streams when nothing else happens."""
    session_id = bench.new_session()
    for count in (1, 100, 1000):
        with opened(bench, count) as streams:
            poster = Poster(bench, session_id, every=0.2 if count > 100 else 0.1)
            streams.read(bench.seconds)
            poster.stop()
            streams.read(0.5)
            bench.add(
                f"event to stream, {count} streams",
                p50_ms=percentile(streams.latencies, 0.5),
                p99_ms=percentile(streams.latencies, 0.99),
                max_ms=percentile(streams.latencies, 1.0),
                told=f"{len(streams.latencies)} of {poster.posted * streams.open}",
                refused=streams.refused,
            )


def busy_streams(bench: Bench) -> None:
    """8 connections ingest as fast as they can while 100 streams are open and told of everything."""
    session_id = bench.new_session()
    request = bench.event(bench.new_session())
    with opened(bench, 100) as streams, multiprocessing.Pool(1) as pool:
        ingest = pool.apply_async(_load, (bench.target, request, 8, bench.seconds))
        poster = Poster(bench, session_id, every=0.1)
        streams.read(bench.seconds)
        poster.stop()
        result = ingest.get(60)
        streams.read(2)
        bench.add("single events, 8 connections, 100 streams open", **figures(result))
        bench.add(
            "event to stream, 100 streams, 8 connections ingesting",
            p50_ms=percentile(streams.latencies, 0.5),
            p99_ms=percentile(streams.latencies, 0.99),
            max_ms=percentile(streams.latencies, 1.0),
            told=f"{len(streams.latencies)} of {poster.posted * 100}",
            mb_per_second=streams.bytes / 1e6 / bench.seconds,
            cut_off=100 - streams.open,
        )


def _load(target: Target, request: bytes, connections: int, seconds: float) -> Result:
    return load(target, lambda _: request, connections=connections, seconds=seconds)


@contextlib.contextmanager
def opened(bench: Bench, count: int) -> Iterator[Streams]:
    """Hold `count` streams open for the length of a `with` block."""
    streams = Streams(bench.target, count)
    try:
        streams.settle(10)
        time.sleep(0.5)
        yield streams
    finally:
        streams.close()
        time.sleep(0.5)


class Poster(threading.Thread):
    """Posts a probe every so often, on a connection of its own."""

    def __init__(self, bench: Bench, session_id: str, *, every: float) -> None:
        super().__init__(daemon=True)
        self.posted = 0
        self._bench, self._session_id, self._every = bench, session_id, every
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        with self._bench.target.connect() as sock:
            while not self._done.wait(self._every):
                body = probe(self._session_id)
                sock.sendall(self._bench.target.request("POST", f"/sessions/{self._session_id}/events", body))
                self.posted += read_answer(sock)[0] == 201

    def stop(self) -> None:
        """Post no more."""
        self._done.set()
        self.join(60)


SESSIONS = 50  # of Claude Code at a time, each on a connection of its own
CALLS = 8  # tool calls in a turn


def hooks(bench: Bench) -> None:
    """Claude Code's hooks, which nobody decides, at rates that do not wait for the server: 250, 500, 1,000 a second.

    A server without that door gets no row.
    """
    status, _ = bench.target.call("POST", HOOKS, hook("warm-up", 0))
    if status == 404:
        return
    for rate in (250, 500, 1000):
        name = uuid.uuid4().hex[:8]

        def make(number: int, name: str = name) -> bytes:
            session, step = number % SESSIONS, number // SESSIONS
            return bench.target.request("POST", HOOKS, json.dumps(hook(f"{name}-{session}", step)).encode())

        result = paced(bench.target, make, connections=SESSIONS, rate=rate, seconds=bench.seconds)
        p95 = result.percentile(0.95)
        bench.add(f"Claude Code hooks, {rate} a second", **figures(result), p95_ms=p95)


HOOKS = "/hooks/claude-code"


def hook(session: str, step: int) -> dict[str, Any]:
    """Return the hook of a session's `step`: a prompt, its calls and their results, what is said, the turn's end."""
    turn, place = divmod(step, 2 * CALLS + 5)
    common = {
        "session_id": session,
        "prompt_id": f"{session}-{turn}",
        "transcript_path": f"/home/dev/.claude/projects/shop/{session}.jsonl",
        "cwd": "/home/dev/shop",
        "permission_mode": "default",
    }
    said = {"message_id": f"m{turn}", "turn_id": f"t{turn}"}
    if place == 0:
        return common | {"hook_event_name": "UserPromptSubmit", "prompt": TEXT}
    if place <= 2 * CALLS:
        number = (place + 1) // 2
        call = {
            "tool_name": "Bash",
            "tool_input": {"command": f"pytest -q tests/test_{number}.py", "description": "Run the tests"},
            "tool_use_id": f"toolu_{session}_{turn}_{number}",
        }
        if place % 2:
            return common | call | {"hook_event_name": "PreToolUse"}
        ended = {"tool_response": {"stdout": TEXT, "stderr": "", "interrupted": False}, "duration_ms": 40}
        return common | call | ended | {"hook_event_name": "PostToolUse"}
    rest: list[dict[str, Any]] = [
        {"hook_event_name": "MessageDisplay", "index": 0, "final": False, "delta": TEXT} | said,
        {"hook_event_name": "MessageDisplay", "index": 1, "final": True, "delta": "Done."} | said,
        {"hook_event_name": "Notification", "message": "Claude is waiting for your input"},
        {"hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": TEXT + "Done."},
    ]
    return common | rest[place - 2 * CALLS - 1]


def dispatch(bench: Bench) -> None:
    """How soon a waiting runner has its run, from the sending of POST /runs."""
    runner = register(bench)
    latencies = []
    with bench.target.connect() as polling, bench.target.connect() as ordering:
        for _ in range(60):
            polling.sendall(bench.target.request("GET", f"/runner/runs?runner_id={runner}"))
            time.sleep(0.06)
            order = json.dumps(
                {"type": "start_session", "prompt": "bench", "additional_demands": {"tags": [runner]}}
            )
            sent = time.perf_counter()
            ordering.sendall(bench.target.request("POST", "/runs", order.encode()))
            status, body = read_answer(polling)
            latencies.append((time.perf_counter() - sent) * 1000)
            read_answer(ordering)
            assert status == 200, f"the poll answered {status}"
            run_id = json.loads(body)["run"]["run_id"]
            for step in ("started", "completed"):
                bench.target.call(
                    "POST", f"/runner/runs/{run_id}/{step}", {"runner_id": runner, "status": "success"}
                )
    bench.target.call("DELETE", f"/runners/{runner}?self=true")
    bench.add(
        "waiting runner has its run",
        p50_ms=percentile(latencies, 0.5),
        p99_ms=percentile(latencies, 0.99),
        max_ms=max(latencies),
    )


def register(bench: Bench) -> str:
    """Register a runner of its own kind and return its id; it takes what demands its id as a tag."""
    place = f"/bench/{uuid.uuid4().hex[:8]}"
    identity = {
        "hostname": "bench",
        "project_dir": place,
        "executor_profile": "bench",
        "executor": {"type": "bench", "command": "true", "config": {}},
    }
    _, answer = bench.target.call("POST", "/runner/register", identity)
    runner = str(answer["runner_id"])
    bench.target.call("DELETE", f"/runners/{runner}?self=true")
    tags = {"tags": [runner], "require_matching_tags": True}
    status, answer = bench.target.call("POST", "/runner/register", identity | tags)
    assert status == 200, f"POST /runner/register answered {status}: {answer}"
    return runner


def idle_runners(bench: Bench) -> None:
    """What 50 runners that wait cost the server, with whatever old runs it has."""
    runners = [register(bench) for _ in range(50)]
    sockets = [bench.target.connect() for _ in runners]
    for sock, runner in zip(sockets, runners, strict=True):
        sock.sendall(bench.target.request("GET", f"/runner/runs?runner_id={runner}"))
    time.sleep(1)
    bench.add("50 waiting runners", cpu_percent=machine.cpu_share(bench.pids, IDLE_FOR))
    for sock, runner in zip(sockets, runners, strict=True):
        sock.close()
        bench.target.call("DELETE", f"/runners/{runner}?self=true")


def lists(bench: Bench, paths: dict[str, str]) -> None:
    """How long one reader waits for lists and timelines."""
    for name, path in paths.items():
        request = bench.target.request("GET", path)
        result = load(
            bench.target, lambda _, request=request: request, connections=1, seconds=bench.seconds / 2
        )  # type: ignore[misc]
        bench.add(name, **figures(result))


def fill(bench: Bench, *, sessions: int, long_session: int, events: int) -> str:
    """Make the server hold so much, through its own doors; return the id of the long session."""
    began = time.monotonic()
    order = bench.target.request("POST", "/runs", b'{"type":"start_session","prompt":"bench"}')
    _, known = bench.target.call("GET", "/sessions")
    missing = max(0, sessions - len(known["sessions"]))
    with bench.target.connect() as sock:
        for _ in range(missing):
            sock.sendall(order)
            status, body = read_answer(sock)
            assert status == 201
            sock.sendall(bench.target.request("POST", f"/runs/{json.loads(body)['run_id']}/stop"))
            read_answer(sock)
    long_id, other = bench.new_session(), bench.new_session()
    for session_id, count in ((long_id, long_session), (other, events - long_session)):
        body = b"\n".join([event_body(session_id)] * 5000)
        request = bench.target.request("POST", "/api/events", body, "Content-Type: application/x-ndjson")
        with bench.target.connect() as sock:
            for _ in range(count // 5000):
                sock.sendall(request)
                status, _ = read_answer(sock)
                assert status == 200, f"POST /api/events answered {status}"
    bench.add("filled", sessions=sessions, events=events, seconds=time.monotonic() - began)
    return long_id


MEASURES: dict[str, Callable[[Bench], None]] = {
    "idle": idle_streams,
    "dispatch": dispatch,
    "runners": idle_runners,
    "streams": quiet_streams,
    "busy": busy_streams,
    "single": single_events,
    "hooks": hooks,
    "batch": batches,
}
