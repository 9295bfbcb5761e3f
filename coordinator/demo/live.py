"""A small fleet that works through the real HTTP API: runners that poll, executors that report and ask, terminals.

It knows nothing of the server but its address and keys, which it makes for itself and revokes at the end. It
is also the shortest complete example of a runner: register, poll, started, bind, events, completed. In a database of
the demo's own its people answer what it asks (demo.people).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from django.db import connection
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.demo.cast import (
    AT_TERMINALS,
    TEAMS,
    TERMINAL_TRADES,
    TRADES,
    Team,
    Trade,
    demo_agent_id,
    demo_blueprint_name,
)
from coordinator.demo.people import DemoPeople
from coordinator.demo.tasks import (
    DelegationStep,
    EndStep,
    MessageStep,
    PermissionStep,
    Step,
    ToolCallStep,
    task,
)
from coordinator.demo.terminals import DemoTerminal
from coordinator.identity.actors import system_actor
from coordinator.lib import instants

WriteLine = Callable[[str], object]
SPEED = 2.5  # calls take this many times less than the story says
LONGEST_PAUSE = 8.0  # seconds
NEW_RUN_EVERY = (5.0, 14.0)  # seconds, between these
AT_ONCE = 6  # sessions
HEARTBEAT_EVERY = 30.0  # seconds
POLL_TIMEOUT = 40.0  # seconds; the server answers an empty poll after 30


class ServerUnreachable(Exception):
    """Nobody answers at the address."""


class DemoRequestRefused(Exception):
    """The server answered with an error; `status` and `detail` are its own."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status


@dataclass(frozen=True, slots=True)
class DemoApiClient:
    url: str
    key: str
    host: str = ""  # the machine that a terminal's hooks name

    def __call__(self, method: str, path: str, body: Any = None, timeout: float = 20.0) -> Any:
        """Make one request and return the decoded answer (None for 204). Raises DemoRequestRefused, or OSError."""
        request = urllib.request.Request(  # noqa: S310 - the operator named the address
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                **({"X-Signalbox-Host": self.host} if self.host else {}),
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as refusal:
            raise DemoRequestRefused(refusal.code, refusal.read().decode(errors="replace")[:300]) from None
        return json.loads(text) if text else None


@dataclass(slots=True)
class DemoFleet:
    api: DemoApiClient
    say: WriteLine
    dice: Random = field(default_factory=Random)
    over: threading.Event = field(default_factory=threading.Event)
    stopped_runs: set[str] = field(default_factory=set)
    at_work: set[str] = field(default_factory=set)
    switched_off: set[str] = field(default_factory=set)
    refused: type[Exception] = DemoRequestRefused

    def request_with_retries(
        self,
        method: str,
        path: str,
        body: Any = None,
        timeout: float = 20.0,
        *,
        api: DemoApiClient | None = None,
    ) -> Any:
        """Make a request, and again until the server is back, should it be away (a restart, say)."""
        wait = 0.5
        while True:
            try:
                return (api or self.api)(method, path, body, timeout)
            except DemoRequestRefused as refusal:
                if refusal.status != 503 or self.over.is_set():
                    raise
            except OSError:
                if self.over.is_set():
                    raise
            self.over.wait(wait)
            wait = min(wait * 2, 5.0)

    def pause_at_demo_speed(self, seconds: float) -> None:
        """Let time pass, faster than in the story; end early when the fleet stops."""
        self.over.wait(min(LONGEST_PAUSE, seconds / SPEED * self.dice.uniform(0.7, 1.5)))


def require_reachable_server(url: str) -> None:
    """Raise ServerUnreachable unless a Signalbox answers at `url`."""
    try:
        urllib.request.urlopen(url + "/health", timeout=5).close()  # noqa: S310
    except OSError:
        raise ServerUnreachable(f"No Signalbox answers at {url}. Start it with `signalbox serve`.") from None


def run_demo_fleet(url: str, *, say: WriteLine, unanswered: str | None) -> None:
    """Keep the fleet working on the server at `url` until Ctrl-C.

    The demo's people answer what it asks, unless `unanswered` says why not.
    """
    demo_keys = DemoKeys()
    fleet = DemoFleet(DemoApiClient(url, demo_keys.create_demo_key("fleet", ["runner", "operator"])), say)
    runners = [DemoRunner(fleet, team) for team in TEAMS]
    terminals = [
        DemoTerminal(
            fleet,
            name,
            team,
            trade,
            DemoApiClient(
                url, demo_keys.create_demo_key(name, ["agent"], demo_agent_id(team, trade)), team.hostname
            ),
        )
        for name, team, trade in list_demo_terminal_assignments()
    ]
    connection.close()
    works: list[Callable[[], None]] = [lambda: run_heartbeat_loop(fleet)]
    works += [runner.serve_demo_runs for runner in runners] + [
        terminal.run_terminal_sessions for terminal in terminals
    ]
    works += [] if unanswered else [DemoPeople(demo_keys.names, fleet.over, say).answer_requests_until_over]
    for work in works:
        threading.Thread(target=work, daemon=True).start()
    say(f"The fleet works through {url}: {len(TEAMS)} runners, {len(terminals)} terminals. Ctrl-C stops it.")
    say(
        f"Only you answer its questions: {unanswered}."
        if unanswered
        else "The demo's people answer its questions after a while, unless you are faster."
    )
    try:
        order_demo_runs_until_over(fleet)
    except KeyboardInterrupt:
        say("Stopping the fleet …")
    finally:
        fleet.over.set()
        for leave in [
            *(runner.deregister_demo_runner for runner in runners),
            *(terminal.end_open_session for terminal in terminals),
        ]:
            leave()
        demo_keys.revoke_demo_keys()


class DemoKeys:
    """The keys that the demo makes for itself: good for a day, and revoked when it stops."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.names: list[str] = []

    def create_demo_key(self, purpose: str, scopes: list[str], agent: str | None = None) -> str:
        """Return a new key; bound to an agent where it is named."""
        now = timezone.now()
        row, raw = keys.issue_api_key(
            name=f"demo-{purpose}-{uuid.uuid4().hex[:6]}",
            scopes=scopes,
            actor=system_actor("demo"),
            now=now,
            agent_id=agent,
            expires_at=now + timedelta(days=1),
        )
        self.ids.append(row.pk)
        self.names.append(row.name)
        return raw

    def revoke_demo_keys(self) -> None:
        for number in self.ids:
            keys.invalidate_api_key(
                number, actor=system_actor("demo"), now=timezone.now(), reason="The fleet has stopped."
            )


def list_demo_terminal_assignments() -> list[tuple[str, Team, Trade]]:
    """Return each agent program with the agent that runs in it, at somebody's terminal."""
    trades = [trade for trade in TRADES if trade.name in TERMINAL_TRADES]
    return [
        (name, TEAMS[place % len(TEAMS)], trades[place % len(trades)])
        for place, name in enumerate(AT_TERMINALS)
    ]


def run_heartbeat_loop(fleet: DemoFleet) -> None:
    """Send each agent's heartbeat; those that people switched off send none, and get no work."""
    while not fleet.over.is_set():
        with contextlib.suppress(OSError, DemoRequestRefused):
            refresh_enabled_and_send_heartbeats(fleet)
        fleet.over.wait(HEARTBEAT_EVERY)


def refresh_enabled_and_send_heartbeats(fleet: DemoFleet) -> None:
    enabled = {
        agent_row["id"]: agent_row["enabled"]
        for agent_row in fleet.request_with_retries("GET", "/api/agents")
    }
    agent_names = {
        demo_agent_id(team, trade): demo_blueprint_name(team, trade) for team in TEAMS for trade in TRADES
    }
    fleet.switched_off = {name for agent, name in agent_names.items() if enabled.get(agent) is False}
    for agent in agent_names:
        if enabled.get(agent) and not fleet.over.is_set():
            fleet.request_with_retries("POST", f"/api/agents/{urllib.parse.quote(agent)}/heartbeat")


def order_demo_runs_until_over(fleet: DemoFleet) -> None:
    """Order a new session now and then, as an operator or a schedule would."""
    while not fleet.over.is_set():
        if len(fleet.at_work) < AT_ONCE:
            team, trade = fleet.dice.choice(TEAMS), fleet.dice.choice(TRADES)
            if demo_blueprint_name(team, trade) not in fleet.switched_off:
                order_demo_run(fleet, team, trade, generate_first_prompt(fleet.dice, team, trade))
        time.sleep(fleet.dice.uniform(*NEW_RUN_EVERY))


def generate_first_prompt(dice: Random, team: Team, trade: Trade) -> str:
    """Return what a person would write to start one of the trade's tasks."""
    step = next(task.tasks[dice.choice(trade.tasks)](dice, team))
    return step.text if isinstance(step, MessageStep) else "Please have a look."


def order_demo_run(fleet: DemoFleet, team: Team, trade: Trade, prompt: str, parent: str | None = None) -> Any:
    body = {
        "type": "start_session",
        "agent_name": demo_blueprint_name(team, trade),
        "prompt": prompt,
        "project_dir": team.project_dir,
        "parent_session_id": parent,
        "additional_demands": {"tags": [team.name]},
    }
    return fleet.request_with_retries("POST", "/runs", body)


class DemoRunner:
    """One machine's runner: it polls for runs and gives each to an executor of its own."""

    def __init__(self, fleet: DemoFleet, team: Team) -> None:
        self.fleet = fleet
        self.team = team
        self.id = ""

    def serve_demo_runs(self) -> None:
        with contextlib.suppress(OSError, DemoRequestRefused):
            self.register_demo_runner()
            while not self.fleet.over.is_set():
                self.poll_once_and_start_demo_run()

    def deregister_demo_runner(self) -> None:
        """Deregister, so that the server does not wait for this runner."""
        with contextlib.suppress(OSError, DemoRequestRefused):
            self.fleet.api("DELETE", f"/runners/{self.id}?self=true", timeout=3)

    def register_demo_runner(self) -> None:
        """Register; the id follows from what is registered."""
        body = {
            "hostname": self.team.hostname,
            "project_dir": self.team.project_dir,
            "executor_profile": "coding",
            "executor": {"type": "claude-code", "command": "executors/claude-code", "config": {}},
            "tags": [self.team.name],
        }
        while not self.id and not self.fleet.over.is_set():
            try:
                self.id = self.fleet.request_with_retries("POST", "/runner/register", body)["runner_id"]
            except DemoRequestRefused as refusal:
                if refusal.status != 409:
                    raise
                self.fleet.over.wait(5)  # an earlier fleet of ours is still taken to be alive

    def poll_once_and_start_demo_run(self) -> None:
        """Wait for a run or a stop, and act on it."""
        path = f"/runner/runs?runner_id={self.id}"
        answer = self.fleet.request_with_retries("GET", path, timeout=POLL_TIMEOUT) or {}
        self.fleet.stopped_runs.update(answer.get("stop_runs", ()))
        if answer.get("deregistered"):
            self.id = ""
            self.register_demo_runner()
        if run := answer.get("run"):
            executor = DemoExecutor(self.fleet, self, run)
            threading.Thread(target=executor.execute_demo_run, name=run["run_id"], daemon=True).start()


class DemoExecutor:
    """Drives one run: takes a task's steps and reports them as events."""

    def __init__(self, fleet: DemoFleet, runner: DemoRunner, run: dict[str, Any]) -> None:
        self.fleet = fleet
        self.runner = runner
        self.team = runner.team
        self.run_id: str = run["run_id"]
        self.session_id: str = run["session_id"]
        self.agent_name: str = run.get("agent_name") or ""
        self.prompt: str = run["prompt"]

    def execute_demo_run(self) -> None:
        """Run the task to its end and report how it ended."""
        self.fleet.at_work.add(self.run_id)
        try:
            self.report_demo_run("started")
            self.bind_demo_session()
            end = self.perform_task_returning_end_step()
        except (OSError, DemoRequestRefused) as problem:
            if not self.fleet.over.is_set():
                self.fleet.say(f"{self.run_id}: {problem}")
            return
        finally:
            self.fleet.at_work.discard(self.run_id)
        with contextlib.suppress(OSError, DemoRequestRefused):
            if end.status == "stopped":
                self.report_demo_run("stopped", signal="SIGTERM")
            elif end.status == "error":
                self.report_demo_run("failed", error=end.error)
            else:
                self.send_demo_event(event_type="session_stop", exit_code=0, reason="completed")
                self.report_demo_run("completed", status="success")

    def perform_task_returning_end_step(self) -> EndStep:
        """Take the steps of a task that fits the agent; return how it ended."""
        trade = next((t for t in TRADES if self.agent_name.endswith(f"-{t.name}")), TRADES[0])
        self.send_demo_event(
            event_type="message", role="user", content=[{"type": "text", "text": self.prompt}]
        )
        steps = task.tasks[self.fleet.dice.choice(trade.tasks)](self.fleet.dice, self.team)
        next(steps)  # the first words are the prompt's
        for step in steps:
            if self.run_id in self.fleet.stopped_runs or self.fleet.over.is_set():
                return EndStep("stopped")
            end = self.perform_step_returning_end_step(step)
            if end is not None:
                return end
        return EndStep()

    def perform_step_returning_end_step(self, step: Step) -> EndStep | None:
        if isinstance(step, EndStep):
            return step
        if isinstance(step, MessageStep):
            self.fleet.pause_at_demo_speed(step.seconds)
            self.send_demo_event(
                event_type="message", role=step.role, content=[{"type": "text", "text": step.text}]
            )
        elif isinstance(step, ToolCallStep):
            self.simulate_and_report_demo_call(step)
        elif isinstance(step, DelegationStep):
            self.order_and_await_child_run(step)
        else:
            return self.request_permission_then_simulate_call(step)
        return None

    def simulate_and_report_demo_call(self, step: ToolCallStep, error: str | None = None) -> None:
        """Report a call, let it take its time, report its result."""
        about = {
            "tool_name": step.tool,
            "tool_input": step.input,
            "tool_use_id": f"toolu_{uuid.uuid4().hex[:20]}",
        }
        self.send_demo_event(event_type="pre_tool", **about)
        if error is None:
            self.fleet.pause_at_demo_speed(step.seconds)
        failed = error or step.error
        self.send_demo_event(
            event_type="post_tool", tool_output=None if failed else step.output, error=failed, **about
        )

    def request_permission_then_simulate_call(self, step: PermissionStep) -> EndStep | None:
        """Ask a person and wait for the word; a no ends the work."""
        body = {
            "plugin_id": step.plugin,
            "permission_type": step.permission,
            "target_resource": step.target,
            "justification": step.why,
            "session_id": self.session_id,
            "tool_name": step.call.tool,
            "tool_input": step.call.input,
        }
        answer = self.fleet.request_with_retries("POST", "/api/permission-requests", body)
        request_id = urllib.parse.quote(answer["request_id"])
        while answer["status"] == "pending":
            if self.fleet.over.is_set() or self.run_id in self.fleet.stopped_runs:
                self.fleet.api("DELETE", f"/api/permission-requests/{request_id}")
                return EndStep("stopped")
            answer = self.fleet.request_with_retries(
                "GET", f"/api/permission-requests/{request_id}/wait?timeout=10"
            )
        if answer["status"] in {"approved", "auto-approved"}:
            self.simulate_and_report_demo_call(step.call)
            return None
        self.simulate_and_report_demo_call(
            step.call, error=f"Permission {answer['status']}: {answer.get('reason') or 'no reason given'}"
        )
        closing_text = "I may not do that; everything else is done, and I leave it there."
        self.send_demo_event(
            event_type="message", role="assistant", content=[{"type": "text", "text": closing_text}]
        )
        return EndStep()

    def order_and_await_child_run(self, step: DelegationStep) -> None:
        trade = next(trade for trade in TRADES if trade.name == step.trade)
        child = order_demo_run(self.fleet, self.team, trade, step.prompt, self.session_id)
        while not self.fleet.over.wait(2):
            run = self.fleet.request_with_retries("GET", f"/runs/{child['run_id']}")
            if run["status"] in {"completed", "failed", "stopped"} or self.run_id in self.fleet.stopped_runs:
                return

    def bind_demo_session(self) -> None:
        body = {
            "executor_session_id": str(uuid.uuid4()),
            "hostname": self.team.hostname,
            "executor_profile": "coding",
            "project_dir": self.team.project_dir,
        }
        self.fleet.request_with_retries("POST", f"/sessions/{self.session_id}/bind", body)

    def send_demo_event(self, **event: Any) -> None:
        body = {
            "session_id": self.session_id,
            "timestamp": instants.format_canonical_instant(timezone.now()),
            **event,
        }
        self.fleet.request_with_retries("POST", f"/sessions/{self.session_id}/events", body)

    def report_demo_run(self, report_kind: str, **body: Any) -> None:
        self.fleet.request_with_retries(
            "POST", f"/runner/runs/{self.run_id}/{report_kind}", {"runner_id": self.runner.id, **body}
        )
