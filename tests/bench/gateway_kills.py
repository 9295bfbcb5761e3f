"""The server killed while calls wait at the MCP gateway: does one run unapproved, or twice without saying so?

    python -m tests.bench.gateway_kills --kills 100

Again and again some clients of different kinds call a tool that a grant asks about: one that waits on its line with
progress, one that waits without, one that leaves and calls again, one that polls a task, one that is given the card's
address. A person is to approve some of the calls, to deny some and to leave some alone, before the kill or after it.
At a random moment the server is ended in one of four ways (killed with its workers, one worker killed, stopped as by
systemd, frozen and then killed) and started again. The clients go on as they are told: they ask again until they hear
an end. The server behind the gateway counts what it runs and takes a moment for it, so that kills hit calls under way.

Nothing may run that nobody approved. What was approved once may run once, and its client hears the result, or that it
may have run, as the audit log does. A call that was begun in the moment of the kill may not have been sent: nobody can
tell, so that is told in the same words, and counted apart. One that left in the moment in which its answer was sent
asks anew, and so does Signalbox: those are counted. Prints one table. Exits with 1 where that does not hold, or the run
proves nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import django
import httpx
from mcp.server import MCPServer

from tests.agents.asking import decide
from tests.bench.agent_kills import WAYS, Ended
from tests.gateway.agents import AGENT, GatewayRefused, Wire, furnish, grant, text_of
from tests.gateway.example_server import serving
from tests.served import Served, Template

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
ADDRESSES = {"elicitation": {"url": {}}}
KINDS = ("line", "plain", "leaves", "task", "address")
FATES = ("approved", "approved", "denied", "left")
OVER_WITHIN = 300.0  # seconds after the server is back: on a busy machine it takes its time
RAN, MAY_HAVE_RUN, NO = "ran", "may have run", "no"


@dataclass
class Tally:
    """What the kills came to."""

    kills: int = 0
    calls: int = 0
    waited: int = 0  # calls whose question stood at the kill
    under_way: int = 0  # calls that their server had begun and not ended at the kill
    ways: Counter[str] = field(default_factory=Counter)
    approved: int = 0
    ran: int = 0
    heard: Counter[str] = field(default_factory=Counter)  # of approved calls: what their clients were told
    # … of those that did not run: the server ended between noting that they are sent and sending them
    not_run: Counter[str] = field(default_factory=Counter)
    unapproved_ran: list[str] = field(default_factory=list)
    ran_twice: list[str] = field(default_factory=list)
    asked_anew: int = (
        0  # of approved calls that ran: their answers were on their way when client or line was gone
    )
    lost: list[str] = field(
        default_factory=list
    )  # approved, and their clients heard of no end, or nothing ran, or the audit log does not say what they heard

    @property
    def proves(self) -> bool:
        """Say whether nothing slipped through, where approved calls did run and kills hit calls that waited."""
        slipped = self.unapproved_ran or self.ran_twice or self.lost
        return not slipped and self.ran > 0 and self.waited > 0


class Upstream:
    """The server behind the gateway: it counts what it begins, and is busy with it for a moment."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.busy = 0

    def build(self) -> MCPServer:
        server = MCPServer("steady")

        @server.tool()
        async def write(path: str) -> str:
            """Write a file."""
            self.runs[path] += 1
            self.busy += 1
            try:
                await asyncio.sleep(0.3 * random.random())
            finally:
                self.busy -= 1
            return f"wrote {path}"

        return server


class Caller:
    """A client that wants one call made, through whatever becomes of the server."""

    def __init__(self, box: Served, kind: str, path: str) -> None:
        self.kind, self.path = kind, path
        capabilities = {"task": TASKS, "address": ADDRESSES}.get(kind)
        self.wire = Wire(box, stateless=capabilities is not None, capabilities=capabilities, server="steady")
        self.box = box
        self.state: dict[str, Any] = {}
        self.task: str | None = None
        self.last = ""  # what it met last, for whoever reads why it heard nothing

    def insist(self, until: Callable[[], bool]) -> str:
        """Call, and call again, until an end is heard; return which: RAN, MAY_HAVE_RUN or NO."""
        while not until():
            self.wire.http.base_url = httpx.URL(self.box.url)
            try:
                if not self.wire.stateless and self.wire.session is None:
                    self.wire.initialize()
                told = self._try()
            except (
                httpx.TransportError,
                GatewayRefused,
                json.JSONDecodeError,
                IndexError,
                KeyError,
            ) as problem:
                self.last = f"{type(problem).__name__} {problem}"[:200]
                time.sleep(0.1)  # the server is away, or its answer was cut off
                continue
            self.last = str(told)[:200]
            if (end := _end(told)) is not None:
                return end
            time.sleep(0.05)
        return "nothing"

    def _try(self) -> dict[str, Any]:
        if self.task is not None:
            found = self.wire.ask("tasks/get", {"taskId": self.task})
            return {} if found["status"] == "working" else found.get("result") or {}
        params: dict[str, Any] = {"name": "write", "arguments": {"path": self.path}}
        if self.kind == "line":
            params["_meta"] = {"progressToken": self.path}
        message = self.wire.message("tools/call", params | self.state)
        if self.kind == "leaves":
            answer = self.wire.http.post(
                self.wire.path, json=message, headers=self.wire.headers_for(message), timeout=1.0
            )
        else:
            answer = self.wire.post(message)
        found = self.wire.response(answer)
        self.state = {}
        result: dict[str, Any] = found.get("result") or {}
        self.task = result.get("taskId")
        if result.get("resultType") == "input_required":
            said = {"approval": {"action": "accept"}}
            self.state = {"requestState": result["requestState"], "inputResponses": said}
        return result


def _end(told: dict[str, Any]) -> str | None:
    """Return the end that a result tells; None where the client is to ask again."""
    if not told.get("content"):
        return None
    words = text_of(told)
    if words.startswith("wrote "):
        return RAN
    if "may have run" in words:
        return MAY_HAVE_RUN
    return NO if "A person denied" in words else None


class Person:
    """Decides what waits, by each call's fate; a call that was approved once is not approved again."""

    def __init__(self, box: Served) -> None:
        self.box = box
        self.browser = box.sign_in("approver")
        self.fates: dict[str, str] = {}
        self.ends = False  # from then on what is left alone is denied, so that its client ends

    def look(self) -> None:
        """Decide about everything that waits, once."""
        for request_id, path in waiting(self.box):
            fate = self.fates.get(path, "left")
            if fate == "approved" and approvals(self.box, path):
                fate = "denied"
            if fate == "left" and not self.ends:
                continue
            self.browser.base_url = httpx.URL(self.box.url)
            try:
                decide(self.browser, request_id, "approved" if fate == "approved" else "denied")
            except (httpx.HTTPError, AssertionError):
                return  # the server is away; it is looked at again


def waiting(box: Served) -> list[tuple[str, str]]:
    """Return the requests that wait, each with the path of its call."""
    rows = box.sql(
        "SELECT r.request_id, c.tool_input FROM permission_requests r JOIN permission_context c"
        " ON c.request_id = r.request_id WHERE r.status = 'pending'"
    )
    return [(str(one), json.loads(given or "{}").get("path", "")) for one, given in rows]


def approvals(box: Served, path: str) -> int:
    """Return how often the call of a path was approved."""
    rows = box.sql(
        "SELECT c.tool_input FROM permission_requests r JOIN permission_context c"
        " ON c.request_id = r.request_id WHERE r.status = 'approved'"
    )
    return sum(json.loads(given or "{}").get("path") == path for (given,) in rows)


def is_audited_as_lost(box: Served, path: str) -> bool:
    """Say whether the audit log has it that the call of a path was begun and may have run."""
    rows = box.sql(
        "SELECT r.request_id, c.tool_input FROM permission_requests r JOIN permission_context c"
        " ON c.request_id = r.request_id WHERE r.status = 'approved'"
    )
    own = {str(one) for one, given in rows if json.loads(given or "{}").get("path") == path}
    lost = box.sql("SELECT metadata FROM audit_logs WHERE event_type = 'MCP_CALL_LOST'")
    return any(json.loads(told)["request_id"] in own for (told,) in lost)


class Kills:
    """One server that is killed again and again while calls wait."""

    def __init__(self, template: Template, folder: Path, *, seed: object, each: int = 10) -> None:
        self.tally = Tally()
        self._dice = random.Random(f"{seed} gateway kills")
        self._server = Ended(template, folder)
        self._each = each
        self._upstream = Upstream()
        self._serving = serving(self._upstream.build().streamable_http_app())
        self._round = 0

    def __enter__(self) -> Kills:
        url = self._serving.__enter__()
        self._server.mend()
        furnish(self._server.served, url, server="steady", policy="opt-in")
        grant(self._server.served, AGENT, "write", "ask", server="steady")
        self._person = Person(self._server.served)
        return self

    def __exit__(self, *problem: Any) -> None:
        self._server.close()
        self._serving.__exit__(None, None, None)

    def round(self) -> None:
        """Have calls wait, kill the server around them, and see what became of each."""
        self._round += 1
        box, person = self._server.served, self._person
        paths = [f"/srv/{self._round}/{number}" for number in range(self._each)]
        callers = [Caller(box, KINDS[number % len(KINDS)], path) for number, path in enumerate(paths)]
        person.fates = {path: self._dice.choice(FATES) for path in paths}
        person.ends = False
        over = threading.Event()
        with ThreadPoolExecutor(self._each + 1) as some:
            ends = [some.submit(one.insist, over.is_set) for one in callers]
            try:
                self._wait_for(len(paths))
                decided = some.submit(person.look) if self._dice.random() < 0.7 else None
                time.sleep(self._dice.random() * 0.8)
                self._end()
                self._server.mend()
                if decided is not None:
                    decided.result()
                until = time.monotonic() + OVER_WITHIN
                person.ends = True
                while not all(one.done() for one in ends) and time.monotonic() < until:
                    person.look()
                    time.sleep(0.1)
            finally:
                over.set()
                for one in callers:
                    one.wire.http.close()  # whoever waits on a line would for a day
        self._count(callers, [one.result() for one in ends])

    def _wait_for(self, count: int) -> None:
        """Wait until the moment to kill has come: in a quarter of the rounds before all questions stand."""
        until = time.monotonic() + (self._dice.random() if self._dice.random() < 0.25 else 15.0)
        while len(waiting(self._server.served)) < count and time.monotonic() < until:
            time.sleep(0.02)

    def _end(self) -> None:
        way = self._dice.choice(WAYS)
        self.tally.kills += 1
        self.tally.ways[way] += 1
        self.tally.waited += len(waiting(self._server.served))
        self.tally.under_way += self._upstream.busy
        self._server.end(way)
        if way == "frozen":
            time.sleep(0.5)

    def _count(self, callers: list[Caller], heard: list[str]) -> None:
        for caller, told in zip(callers, heard, strict=True):
            path = caller.path
            runs, approved = self._upstream.runs[path], approvals(self._server.served, path)
            self.tally.calls += 1
            self.tally.approved += bool(approved)
            self.tally.ran += runs > 0
            if not approved and runs:
                self.tally.unapproved_ran.append(f"{path} {told}")
            if runs > 1:
                self.tally.ran_twice.append(f"{path} {runs} times, {told}")
            if approved:
                self.tally.heard[told] += 1
                self.tally.asked_anew += told == NO and runs > 0
                self.tally.not_run[told] += not runs
                if told == MAY_HAVE_RUN and not is_audited_as_lost(self._server.served, path):
                    self.tally.lost.append(f"{path} ({caller.kind}) is not told as lost by the audit log")
                elif told != MAY_HAVE_RUN and (not runs or told not in {RAN, NO}):
                    words = f"ran {runs} times and its client heard: {told}; at last {caller.last}"
                    self.tally.lost.append(f"{path} ({caller.kind}) {words}")


def table(tally: Tally) -> str:
    """Return the tally as a Markdown table."""
    ways = ", ".join(f"{way} {count}" for way, count in sorted(tally.ways.items()))
    heard, not_run = (
        ", ".join(f"{what} {count}" for what, count in sorted(counted.items()) if count)
        for counted in (tally.heard, tally.not_run)
    )
    rows = {
        "kills": f"{tally.kills} ({ways})",
        "calls": f"{tally.calls}, {tally.waited} of them waiting and {tally.under_way} under way at a kill",
        "approved": f"{tally.approved}, of which ran {tally.ran}; their clients heard: {heard}",
        "approved, and did not run: begun, and the server ended before it was sent": (
            f"{tally.not_run.total()}; their clients heard: {not_run or '-'}"
        ),
        "ran unapproved": str(len(tally.unapproved_ran)),
        "ran twice": str(len(tally.ran_twice)),
        "ran, and asked anew since the answer was lost on its way": str(tally.asked_anew),
        "approved and lost": str(len(tally.lost)),
    }
    return "\n".join(["| what | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--each", type=int, default=10, help="calls that wait at each kill")
    parser.add_argument("--minutes", type=float, default=120, help="no further kill after so long")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="signalbox-kills-") as place:
        (Path(place) / "template").mkdir()
        template = Template(Path(place) / "template")
        try:
            with Kills(template, Path(place) / "server", seed=given.seed, each=given.each) as kills:
                for number in range(1, given.kills + 1):
                    if time.monotonic() - began > given.minutes * 60:
                        break
                    kills.round()
                    print(f"{time.monotonic() - began:6.0f} s  {number}/{given.kills}", flush=True)
        finally:
            template.drop()
    tally = kills.tally
    print(f"\nseed {given.seed}\n\n{table(tally)}")
    print(*tally.unapproved_ran, *tally.ran_twice, *tally.lost, sep="\n")
    return 0 if tally.proves else 1


if __name__ == "__main__":
    sys.exit(main())
