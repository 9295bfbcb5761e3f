"""Plays the recording against a served program: the same requests, in the same order, polls held beside them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.served import Served
from tests.wire.ids import Ids
from tests.wire.likeness import differences
from tests.wire.recording import HEAD, SEED, Exchange, exchanges

# Where a defect of the original shows in the recording, or a choice of ours differs. Each line says why.
BETTER_THAN_SEED: dict[int, str] = {
    106: "a failed run leaves its session in error, not pending",
    135: "a failed run leaves its session in error, not pending",
    140: "a session runs from its runner's word on, not from its executor's",
    204: "a resumed session runs; it does not stay finished",
    205: "a resumed session is stopped by its id",
    210: "and so its runner is told to stop on the poll that the original let run out",
    230: "a held poll gets a run that is ordered while it is held, to its last moment",
    231: "so the next has none to get",
    259: "a run that nobody took leaves its session in error, not pending",
    318: "a waiting runner gets its run at once, not at the next half second",
    357: "a callback's run goes back to where its parent's executor is",
    376: "likewise",
    556: "likewise",
    637: "likewise",
    621: "events of one instant come in the order of receipt, and empty objects are kept",
}
BETTER_THAN_HEAD: dict[int, str] = {
    54: "a run whose completion came before its start has completed; it does not run for ever",
    55: "and its session is idle",
    56: "and its start is written before its end",
    103: "a session runs from its runner's word on, not from its executor's",
    120: "a run that was stopped says so where its end is written",
    122: "a run that has ended cannot be stopped, as the recorded version says",
    123: "the recorded version's sentence",
    155: "a held poll gets a run that is ordered while it is held, to its last moment",
    156: "so the next has none to get",
    164: "says why the session has to be stopped first",
    203: "a run that nobody took leaves its session in error, not pending",
    242: "a list shows blueprints as they are written, as the recorded version does",
    245: "a waiting runner may have its run before anybody asks how the run stands",
    268: "a callback's words are the recorded version's",
    276: "likewise, and the run of 54",
    280: "as 155",
    281: "as 156",
    300: "a callback's words again",
    324: "the recorded version's sentence",
    348: "events of one instant come in the order of receipt, and empty objects are kept",
    351: "an executor's own word of its end counts, as in the recorded version",
    352: "and so there is a result",
    363: "a callback's words again",
    362: "names the field that the recorded version's clients send",
    365: "and a session that has ended may be deleted",
    402: "as 242",
    461: "the recorded version's sentence",
    487: "see 54",
    505: "an unknown parent is not found, and nothing is wedged by it",
    506: "the recorded version's sentence",
    507: "see 505",
    508: "see 505",
    509: "see 505",
}
STATUS_OF_SEED = {210: 200, 230: 200, 231: 204}
STATUS_OF_HEAD = {
    122: 400,
    155: 200,
    156: 204,
    280: 200,
    281: 204,
    352: 200,
    365: 200,
    505: 404,
    507: 201,
    508: 201,
    509: 201,
}
# Scenario 13 begins a second run in a session that is at work, which ours does not (test_example_runner.py
# plays it as a runner would). One poll labelled 13 answers with the first run of 14.
LEFT_OUT = {e.seq for e in exchanges() if e.scenario == "13" and e.seq != 534} | {379}


@dataclass(frozen=True)
class Script:
    """A recording, and where ours differs from it: by line, with another status or with a reason."""

    name: str
    better: dict[int, str]
    status_of: dict[int, int]
    left_out: set[int]


OF_SEED = Script(SEED, BETTER_THAN_SEED, STATUS_OF_SEED, LEFT_OUT)
OF_HEAD = Script(HEAD, BETTER_THAN_HEAD, STATUS_OF_HEAD, set())
# What the original's housekeeping did between two lines takes ours a moment too.
UNTIL = 8.0


@dataclass
class Frames:
    """What one stream of ours sent."""

    frames: list[tuple[str, str, Any]] = field(default_factory=list)
    socket: socket.socket | None = None
    opened: threading.Event = field(default_factory=threading.Event)

    @property
    def last_id(self) -> str:
        """The id of the last frame."""
        return self.frames[-1][0]

    @property
    def last_change(self) -> int:
        """The id of the change that the last frame tells."""
        return int(self.last_id.partition("-")[0]) if self.frames else 0

    def close(self) -> None:
        """Hang up."""
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)


@dataclass
class Played:
    """What came of it: faults and frames by scenario and stream."""

    ids: Ids = field(default_factory=Ids)
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    streams: dict[str, Frames] = field(default_factory=dict)


class Player:
    """One replay of the whole recording."""

    def __init__(self, served: Served, script: Script = OF_SEED) -> None:
        self.served, self.script = served, script
        self.client = served.client()
        self.played = Played()
        self.threads = ThreadPoolExecutor(8)
        self.polls: dict[int, Future[httpx.Response]] = {}

    def play(self) -> Played:
        """Send every request when its turn comes; take a poll's answer when the recorded one came."""
        moments: list[tuple[float, int, Exchange, bool]] = []
        for exchange in exchanges(self.script.name):
            if exchange.seq not in self.script.left_out:
                moments.append((exchange.began, exchange.seq, exchange, True))
                if exchange.is_poll:
                    moments.append((exchange.ended, exchange.seq, exchange, False))
        for _, _, exchange, begins in sorted(moments, key=lambda moment: moment[:2]):
            if not begins:
                self.check(exchange, self.polled(exchange))
            elif exchange.stream:
                self.listen(exchange)
            elif exchange.is_poll:
                self.polls[exchange.seq] = self.threads.submit(self.send, exchange)
                time.sleep(0.02)  # it is held when the next request comes
            else:
                self.check(exchange, self.send_until_alike(exchange))
        self.close_streams()
        return self.played

    def send(self, exchange: Exchange) -> httpx.Response:
        """Send one request with our ids in place of the recorded ones."""
        put = self.played.ids.put
        return self.client.request(
            exchange.method,
            put(exchange.path),
            params=put(exchange.query),
            **({"content": b"not json"} if exchange.body == "not json" else {"json": put(exchange.body)})
            if exchange.body is not None
            else {},
        )

    def polled(self, exchange: Exchange) -> httpx.Response:
        """Return a poll's answer; where ours ran out before the recorded one got its run, the runner polls again."""
        deadline = time.monotonic() + UNTIL
        answer = self.polls[exchange.seq].result()
        due = self.script.status_of.get(exchange.seq, exchange.status)
        while answer.status_code == 204 and due == 200 and time.monotonic() < deadline:
            answer = self.send(exchange)
        return answer

    def send_until_alike(self, exchange: Exchange) -> httpx.Response:
        """Send a request; a question is asked again for a while, because between two lines time went by."""
        deadline = time.monotonic() + UNTIL
        answer = self.send(exchange)
        while (
            exchange.method == "GET"
            and exchange.seq not in self.script.better
            and time.monotonic() < deadline
        ):
            if not self.faults_of(exchange, answer):
                break
            time.sleep(0.1)
            answer = self.send(exchange)
        return answer

    def check(self, exchange: Exchange, answer: httpx.Response) -> None:
        """Note what differs."""
        self.played.ids.learn(exchange.answer, body_of(answer))
        self.played.faults[exchange.scenario] += self.faults_of(exchange, answer)

    def faults_of(self, exchange: Exchange, answer: httpx.Response) -> list[str]:
        """Return how the answer differs from the recorded one, but for the named differences."""
        where = f"#{exchange.seq} {exchange.method} {exchange.path}"
        status = self.script.status_of.get(exchange.seq, exchange.status)
        if answer.status_code != status:
            return [f"{where}: recorded {status}, ours {answer.status_code} {answer.text[:300]}"]
        if exchange.seq in self.script.better:
            return []
        if exchange.answer is not None and answer.headers["content-type"] != "application/json":
            return [f"{where}: content type {answer.headers['content-type']}"]
        ids = Ids()
        ids.ours = dict(self.played.ids.ours)
        ids.learn(exchange.answer, body_of(answer))
        return [f"{where}{fault}" for fault in differences(ids.put(self.expected(exchange)), body_of(answer))]

    def expected(self, exchange: Exchange) -> Any:
        """Return the recorded answer without rows that belong to what was left out."""
        answer = exchange.answer
        if isinstance(answer, dict) and "runs" in answer:
            gone = {
                e.path.split("/")[3]
                for e in exchanges(self.script.name)
                if e.seq in self.script.left_out and "/runner/runs/run" in e.path
            }
            return {"runs": [run for run in answer["runs"] if run["run_id"] not in gone]}
        return answer

    def listen(self, exchange: Exchange) -> None:
        """Open a stream and read it beside until it is closed, or for as long as nothing is due on it."""
        frames = self.played.streams[str(exchange.stream)] = Frames()
        headers = {"Last-Event-ID": self.played.streams["sse2"].last_id} if exchange.headers else {}
        self.threads.submit(read_frames, self.client, self.played.ids.put(exchange.query), headers, frames)
        assert frames.opened.wait(60)
        if exchange.stream != "sse1":
            time.sleep(1)
            frames.close()

    def close_streams(self) -> None:
        """Let what is on its way arrive, and end: the stream of everything tells the last event there is."""
        (last,) = self.served.sql("SELECT max(id) FROM changes WHERE topic = 'events'")[0]
        deadline = time.monotonic() + UNTIL
        while self.played.streams["sse1"].last_change < last and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        for frames in self.played.streams.values():
            frames.close()
        self.threads.shutdown(wait=False)


def read_frames(client: httpx.Client, query: dict[str, str], headers: dict[str, str], frames: Frames) -> None:
    """Open a stream and read its frames until somebody hangs up."""
    pending: list[str] = []
    with (
        contextlib.suppress(httpx.TransportError),
        client.stream("GET", "/sse/sessions", params=query, headers=headers, timeout=60) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        frames.socket = answer.extensions["network_stream"].get_extra_info("socket")
        frames.opened.set()
        for line in answer.iter_lines():
            if line:
                pending.append(line)
                continue
            parts = dict(part.split(": ", 1) for part in pending if not part.startswith(":"))
            if "event" in parts:
                frames.frames.append((parts["id"], parts["event"], json.loads(parts["data"])))
            pending = []


def body_of(answer: httpx.Response) -> Any:
    """Return the decoded body, or its text where it is no JSON."""
    try:
        return answer.json()
    except ValueError:
        return answer.text or None
