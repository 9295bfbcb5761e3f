"""Server, agent or hook ended while calls of agents wait: does any call that is held for certain run?

    python -m tests.bench.agent_kills --kills 40 --direct 200

A lane is an agent (Claude Code, Codex, Gemini CLI, OpenCode; installed from npm where they are not here) with a home
that `signalbox connect` connected, a server with a database of its own, and a rule that holds its calls for certain.
Again and again the agent wants to make a file, and at a random moment around the question something is ended in one
of six ways: the server is killed with its workers (crash), one worker killed (worker), the server stopped as by systemd
(stop), or frozen with its lines open (frozen); the agent is killed (agent), or its hooks are (hook; OpenCode's plugin
has none, so its hook command counts). In half of all rounds a server that was ended is started again at once, while the
agent still waits. Nobody ever approves, so no file may be there when the agent has ended, and a card that nobody waits
for may not stay open for longer than a minute, unless its agent was told to wait. In the first and last round of a lane
a person approves instead, and the file must be there: else the lane proves nothing.

`--kills` counts those, over all agents. The agents' programs take their time; `--direct` counts calls that are put
without them: the very command or plugin that the agent would start is handed what the agent would hand it, several at
once for each end of the server, and each must be answered with a denial, in the agent's own form.

Prints one row a lane. Exits with 1 where a call slipped through or a lane proves nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.agents.asking import asked, decide, hold, waiting
from tests.agents.connected import connect
from tests.agents.programs import PACKAGES
from tests.agents.real_agents import AGENTS, Home, Run
from tests.agents.test_real_agents import hooks_of
from tests.served import ROOT, Served, Template, children_of

ASKED_WITHIN, ENDED_WITHIN = 120.0, 180.0  # seconds, on a busy machine
WAYS = ("crash", "worker", "stop", "frozen")
NEAR_WAYS = ("agent", "hook")  # what is killed is not the server
CLOSED_WITHIN = 60.0  # seconds


@dataclass
class Tally:
    """What the kills of one lane came to."""

    agent: str
    kills: int = 0
    waited: int = 0  # kills at which the call's question stood
    restarted: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    slipped: list[str] = field(default_factory=list)
    untold: int = 0  # runs whose model was not told of a denial
    approved_ran: list[bool] = field(default_factory=list)
    left_open: int = 0  # cards that stayed open though nobody waited

    def count(self, way: str, again: bool, waited: bool) -> None:
        """Count one kill: how the server ended, whether it came back at once, whether the call's question stood."""
        self.kills += 1
        self.waited += waited
        self.restarted += again
        self.ways[way] += 1

    @property
    def proves(self) -> bool:
        """Say whether nothing slipped through where approved calls did run."""
        ran = bool(self.approved_ran) and all(self.approved_ran)
        return ran and not self.slipped and not self.left_open


class Ended:
    """A server that is ended and mended again and again."""

    def __init__(self, template: Template, folder: Path) -> None:
        self.served = Served(template, folder, workers=2, env={})
        self._frozen: list[int] = []

    def end(self, way: str) -> None:
        """End it in one of WAYS."""
        process = self.served.process
        assert process is not None
        servers = children_of(process.pid)
        pids = [process.pid, *servers, *(worker for one in servers for worker in children_of(one))]
        if way == "stop":
            self.served.stop()
        elif way == "worker":
            self.served.kill_worker()
        elif way == "frozen":
            self._frozen = pids
            _send(pids, signal.SIGSTOP)
        else:
            self._crash(pids)

    def mend(self) -> None:
        """Start it anew where it does not run whole."""
        if self._frozen:
            self._crash(self._frozen)
            self._frozen = []
        process = self.served.process
        if process is None or process.poll() is not None:
            self.served.start()

    def close(self) -> None:
        """End it for good, with its database."""
        _send(self._frozen, signal.SIGCONT)
        self.served.close()

    def _crash(self, pids: Iterable[int]) -> None:
        _send(pids, signal.SIGKILL)
        if self.served.process is not None:
            self.served.process.wait()
        self.served.process = None


def _send(pids: Iterable[int], how: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            continue


class Lane:
    """One agent, its home and its server; `close` ends all of them."""

    def __init__(self, agent: str, template: Template, folder: Path, given: argparse.Namespace) -> None:
        self._deadline = given.deadline
        self.tally = Tally(agent)
        self._dice = random.Random(f"{given.seed} {agent}")
        self._server = Ended(template, folder / "server")
        program = f"{agent}-newest" if given.newest and f"{agent}-newest" in PACKAGES else ""
        self._home = Home(agent, folder, program)
        self._took = 5.0  # seconds from an agent's start to its question
        self._rounds = 0

    def prepare(self) -> None:
        """Start the server, connect the agent and lay down the rule."""
        self._server.mend()
        connect(self._home, self._server.served, deadline=self._deadline)
        hold(self._server.served)

    def close(self) -> None:
        """End what is left."""
        self._server.close()
        self._home.close()

    def approve(self) -> None:
        """Let one call be approved: it must run."""
        approver = self._server.served.sign_in("approver")
        name, run = self._begin()
        try:
            request_id = asked(self._server.served, self.tally.agent, f"touch {name}", ASKED_WITHIN)
            assert request_id is not None, f"nothing was asked: {run.output()}"
            decide(approver, request_id, "approved")
            run.ended(ENDED_WITHIN)
        finally:
            run.close()
        self.tally.approved_ran.append(self._home.ran(name))

    def kill(self) -> None:
        """End something around one call: the call must not run."""
        way, again = self._dice.choice((*WAYS, *NEAR_WAYS)), self._dice.random() < 0.5
        name, run = self._begin()
        try:
            waited = self._wait(f"touch {name}")
            if way == "agent":
                _send([run.process.pid], signal.SIGKILL)
            elif way == "hook":
                _send(hooks_of(run.process.pid), signal.SIGKILL)
            else:
                self._server.end(way)
            if again:
                self._server.mend()
            requests = run.ended(ENDED_WITHIN)
        finally:
            run.close()
        self._server.mend()
        self.tally.count(way, again and way in WAYS, waited)
        if way != "agent":
            self.tally.untold += "ignalbox" not in json.dumps(requests[-1:])
        self.tally.left_open += not self._closes(f"touch {name}")
        if self._home.ran(name):
            self.tally.slipped.append(f"{way}, {'started again' if again else 'gone'}, {waited=}: {name}")

    def _closes(self, command: str) -> bool:
        """Say whether no card of the command is left in time by which nobody waits, nor was told to."""
        deadline = time.monotonic() + CLOSED_WITHIN
        rows = (
            "SELECT c.tool_input FROM permission_requests r JOIN permission_context c"
            " ON c.request_id = r.request_id WHERE r.status = 'pending' AND c.held_at IS NULL"
        )
        while any(command in str(given) for (given,) in self._server.served.sql(rows)):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def _begin(self) -> tuple[str, Run]:
        self._rounds += 1
        name = f"held-{self._rounds}"
        return name, self._home.starts(f"touch {name}")

    def _wait(self, command: str) -> bool:
        """Wait until the moment to end the server has come; say whether the call's question stands then."""
        agent, served = self.tally.agent, self._server.served
        if self._dice.random() < 0.25:  # at any moment, also before it asks
            asked(served, agent, command, self._dice.random() * self._took)
            return waiting(served, agent, command) is not None
        began = time.monotonic()
        asked(served, agent, command, ASKED_WITHIN)
        self._took = time.monotonic() - began
        time.sleep(self._dice.random())
        return waiting(served, agent, command) is not None


# --- without the agents' programs ----------------------------------------------------------------------------


@dataclass
class DirectCall:
    """A call that is put without its agent, and the process that must answer it."""

    agent: str
    command: str
    process: subprocess.Popen[str]

    def denied(self) -> str:
        """Wait for the answer; return how it denies the call, "" where it does not."""
        said, _ = self.process.communicate(timeout=ENDED_WITHIN)
        if self.agent == "opencode":  # its plugin throws
            return str(json.loads(said.splitlines()[-1]).get("error") or "")
        if self.process.returncode == 2:
            return "exit code 2"
        answer = json.loads(said or "{}")
        form = answer.get("hookSpecificOutput", answer)
        is_denial = "deny" in {form.get("permissionDecision"), form.get("decision")}
        return str(form.get("permissionDecisionReason") or form.get("reason")) if is_denial else ""


def put_directly(home: Home, number: int, deadline: int) -> DirectCall:
    """Put a call as the agent would: to the command in its settings, or to the plugin."""
    name, command = home.agent.name, f"touch direct-{number}"
    if name == "opencode":
        words = ["node", str(ROOT / "tests" / "dialects" / "drive_plugin.mjs")]
        about = {"tool": "bash", "sessionID": f"ses_direct_{number}", "callID": f"call_{number}"}
        step = {"call": "tool.execute.before", "input": about, "output": {"args": {"command": command}}}
        body: dict[str, object] = {"plugin": str(home.settings_files()[0]), "steps": [step]}
    else:
        words = [str(home.path / "bin" / "signalbox"), "hook", name, "--timeout", str(deadline)]
        body = _payload(name, number, command)
    process = subprocess.Popen(
        words,
        cwd=home.work,
        env=home.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(body))
    process.stdin.close()
    process.stdin = None
    return DirectCall(name, command, process)


def _payload(agent: str, number: int, command: str) -> dict[str, object]:
    """Return what the agent's program says before a call, in all that matters here."""
    event = "BeforeTool" if agent == "gemini" else "PreToolUse"
    payload: dict[str, object] = {
        "session_id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{agent} {number}")),
        "cwd": "/home/dev/project",
        "hook_event_name": event,
        "tool_name": AGENTS[agent].tool,
        "tool_input": {"command": command},
    }
    if agent == "gemini":
        return payload | {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())}
    return payload | {"tool_use_id": f"call_{number}", "turn_id": f"turn_{number}", "model": "scripted"}


class Volleys:
    """All agents' hooks without their programs, many at a time, on one server."""

    def __init__(
        self, agents: Sequence[str], template: Template, folder: Path, given: argparse.Namespace
    ) -> None:
        self._deadline = given.deadline
        self.tallies = {agent: Tally(f"{agent}, directly") for agent in agents}
        self._dice = random.Random(f"{given.seed} volleys")
        self._server = Ended(template, folder / "server")
        self._homes = {agent: Home(agent, folder / agent) for agent in agents}
        self._number = 0

    def prepare(self) -> None:
        """Start the server, connect the agents and lay down the rule."""
        self._server.mend()
        for home in self._homes.values():
            connect(home, self._server.served, deadline=self._deadline)
        hold(self._server.served)

    def close(self) -> None:
        """End what is left."""
        self._server.close()
        for home in self._homes.values():
            home.close()

    def approve(self) -> None:
        """Let one call of each agent be approved: it must be let through."""
        approver = self._server.served.sign_in("approver")
        for agent in self._homes:
            (call,) = self._put(1, [agent])
            request_id = asked(self._server.served, call.agent, call.command, ASKED_WITHIN)
            assert request_id is not None, f"nobody was asked about {call.command}: {call.denied()}"
            decide(approver, request_id, "approved")
            self.tallies[call.agent].approved_ran.append(not call.denied())

    def volley(self, each: int) -> None:
        """End the server around so many calls of each agent: all must be denied."""
        way, again = self._dice.choice(WAYS), self._dice.random() < 0.5
        calls = self._put(each)
        if self._dice.random() < 0.25:
            time.sleep(self._dice.random())
        else:
            until = time.monotonic() + self._deadline / 2
            for call in calls:
                left = max(0.0, until - time.monotonic())
                asked(self._server.served, call.agent, call.command, left)
        waited = {c.command for c in calls if waiting(self._server.served, c.agent, c.command)}
        self._server.end(way)
        if again:
            self._server.mend()
        for call in calls:
            tally, denial = self.tallies[call.agent], call.denied()
            tally.count(way, again, call.command in waited)
            tally.untold += "ignalbox" not in denial
            if not denial:
                tally.slipped.append(f"{way}, {'started again' if again else 'gone'}: {call.command}")
        self._server.mend()

    def _put(self, each: int, agents: Sequence[str] = ()) -> list[DirectCall]:
        numbers = range(self._number, self._number + each)
        self._number += each
        homes = [self._homes[agent] for agent in agents or self._homes]
        return [put_directly(home, number, self._deadline) for number in numbers for home in homes]


def run_volleys(volleys: Volleys, calls: int, each: int, say: Callable[[str], object]) -> list[Tally]:
    """Approve, end the server around that many calls over all agents, approve."""
    try:
        volleys.prepare()
        volleys.approve()
        done = 0
        while done < calls:
            volleys.volley(each)
            done = sum(one.kills for one in volleys.tallies.values())
            slipped = sum(len(one.slipped) for one in volleys.tallies.values())
            say(f"directly {done}/{calls} slipped: {slipped}")
        volleys.approve()
    finally:
        volleys.close()
    return list(volleys.tallies.values())


def run_lane(lane: Lane, kills: int, say: Callable[[str], object]) -> Tally:
    """Approve, kill as often as told, approve; `say` is told how far it is."""
    try:
        lane.prepare()
        lane.approve()
        for number in range(1, kills + 1):
            lane.kill()
            say(f"{lane.tally.agent} {number}/{kills} slipped: {len(lane.tally.slipped)}")
        lane.approve()
    finally:
        lane.close()
    return lane.tally


def table(tallies: Iterable[Tally]) -> str:
    """Return one Markdown row a lane."""
    head = (
        "| agent | kills | while it waited | started again at once | ways | not told why | approved ran"
        " | left open | slipped |"
    )
    rows = [
        f"| {one.agent} | {one.kills} | {one.waited} | {one.restarted}"
        f" | {', '.join(f'{way} {count}' for way, count in sorted(one.ways.items()))}"
        f" | {one.untold} | {sum(one.approved_ran)} of {len(one.approved_ran)} | {one.left_open} | {len(one.slipped)} |"
        for one in tallies
    ]
    return "\n".join([head, "|---|---:|---:|---:|---|---:|---:|---:|---:|", *rows])


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kills", type=int, default=200, help="of calls of the real programs, over all agents"
    )
    parser.add_argument("--direct", type=int, default=0, help="of calls that are put without them, likewise")
    parser.add_argument("--each", type=int, default=3, help="calls of an agent at once, put without it")
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--deadline", type=int, default=20, help="seconds that an agent gives a hook")
    parser.add_argument("--lanes", type=int, default=4, help="how many agents at a time")
    parser.add_argument(
        "--newest", action="store_true", help="the newest version of agents that have two here"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    given = parser.parse_args()
    each = -(-given.kills // len(given.agents))
    lock, began = threading.Lock(), time.monotonic()

    def say(words: str) -> None:
        with lock:
            print(f"{time.monotonic() - began:6.0f} s  {words}", flush=True)

    with tempfile.TemporaryDirectory(prefix="signalbox-kills-") as place:
        (Path(place) / "template").mkdir()
        template = Template(Path(place) / "template")
        try:
            tallies = []
            if given.direct:
                volleys = Volleys(given.agents, template, Path(place) / "direct", given)
                tallies += run_volleys(volleys, given.direct, given.each, say)
            if given.kills:
                lanes = [Lane(name, template, Path(place) / name, given) for name in given.agents]
                with ThreadPoolExecutor(given.lanes) as some:
                    tallies += some.map(lambda lane: run_lane(lane, each, say), lanes)
        finally:
            template.drop()
    print(f"\nseed {given.seed}\n\n{table(tallies)}")
    print(*(f"{one.agent}: {words}" for one in tallies for words in one.slipped), sep="\n")
    return 0 if all(one.proves for one in tallies) else 1


if __name__ == "__main__":
    sys.exit(main())
