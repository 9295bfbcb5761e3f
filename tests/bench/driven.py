"""`python -m tests.bench.driven`: how late agents that a runner drives hear, and are heard.

Starts a server of its own (on PostgreSQL where DATABASE_URL names one), the runner's program, and agents that say what
time it is. Prints one Markdown table. Linux alone: processes share a clock there.
"""

from __future__ import annotations

import argparse
import http.client
import logging
import os
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import django
import httpx

from tests.served import Served, Template, running

if TYPE_CHECKING:
    from tests.runner.person import Person

SESSIONS = 20
PROBE, GOT, ANSWERED = (
    re.compile(r"probe:(\d+):"),
    re.compile(r"got:(\d+):(\d+):"),
    re.compile(r"answered:(\d+):"),
)
QUIET = 10.0  # seconds of idling that are measured


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20, help="orders and verdicts that are timed")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the sessions stream")
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    from tests.runner.person import Person

    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        work = Path(folder) / "work"
        work.mkdir()
        try:
            with running(template, Path(folder) / "server") as served:
                person = Person(served, work)
                with person.runner() as runner:
                    rows = measured(person, runner, given.times, given.seconds)
        finally:
            template.drop()
    print("| what | p50 | p95 | most |\n|---|---:|---:|---:|")
    for what, values in rows.items():
        values.sort()
        p95 = values[min(len(values) - 1, int(len(values) * 0.95))]
        print(f"| {what} | {median(values):.1f} | {p95:.1f} | {values[-1]:.1f} |")


def measured(
    person: Person, runner: subprocess.Popen[str], times: int, seconds: float
) -> dict[str, list[float]]:
    """Return the figures by what they are: milliseconds, megabytes, per cent of a core."""
    first, fresh = prompts(person, times)
    rows = {"order to prompt, kept agent, ms": first, "order to prompt over the agent's own start, ms": fresh}
    rows["verdict to agent, ms"] = verdicts(person, times)
    busy = {"runner": [runner.pid], "server": person.served.worker_pids()}
    before = {name: sum(map(processor, pids)) for name, pids in busy.items()}
    rows[f"update to page, {SESSIONS} sessions streaming, ms"] = updates(person, seconds)
    for name, pids in busy.items():
        spent = (sum(map(processor, pids)) - before[name]) / seconds * 100
        rows[f"{name} meanwhile, % of a core"] = [spent]
    rows[f"runner's memory after {SESSIONS} sessions, MB"] = [memory(runner.pid)]
    idle = processor(runner.pid)
    time.sleep(QUIET)
    rows["idle runner, % of a core"] = [(processor(runner.pid) - idle) / QUIET * 100]
    return rows


def prompts(person: Person, times: int) -> tuple[list[float], list[float]]:
    """Time orders: follow-ups to one agent, and new sessions less what their agents take to start."""
    _, session = done(person, "do: got")
    kept, fresh = [], []
    for _ in range(times):
        sent = time.perf_counter_ns()
        done(person, "do: got", session)
        kept.append((int(GOT.findall(person.said(session))[-1][0]) - sent) / 1e6)
    for _ in range(times // 2):
        sent = time.perf_counter_ns()
        _, other = done(person, "do: got")
        at, own = map(int, GOT.findall(person.said(other))[-1])
        fresh.append((at - sent - own) / 1e6)
    return kept, fresh


def done(person: Person, prompt: str, session: str | None = None) -> tuple[str, str]:
    run, session = person.order(prompt, session)
    person.status(run, "completed")
    return run, session


def verdicts(person: Person, times: int) -> list[float]:
    """Time a person's approvals, from the sending of the form to the agent."""
    found = []
    session = None
    client = person.served.sign_in("approver")
    for number in range(times):
        run, session = person.order(f"do: ask time {number}", session)
        form = person.form(client, person.card(session))
        sent = time.perf_counter_ns()
        client.post("/ui/approvals/decide/", data={**form, "verdict": "approved"})
        person.status(run, "completed")
        found.append((int(ANSWERED.findall(person.said(session))[-1]) - sent) / 1e6)
    return found


def updates(person: Person, seconds: float) -> list[float]:
    """Time what twenty agents say ten times a second, until a page of each session has it."""
    viewer = person.served.sign_in("viewer")
    orders = [person.order("hello") for _ in range(SESSIONS)]
    for run, _ in orders:
        person.status(run, "completed")
    pages = [Page(person.served, viewer, session) for _, session in orders]
    orders = [person.order(f"do: probe {seconds}", session) for _, session in orders]
    for run, _ in orders:
        person.status(run, "completed")
    return [latency for page in pages for latency in page.latencies]


class Page:
    """What an open page of a session hears, and how late (in ms) each time that the agent said."""

    def __init__(self, served: Served, viewer: httpx.Client, session: str) -> None:
        self.latencies: list[float] = []
        self._line = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
        cookie = f"signalbox_session={viewer.cookies['signalbox_session']}"
        self._line.request("GET", f"/ui/live/?topics=timeline:{session}&last=", headers={"Cookie": cookie})
        self._answer: Any = self._line.getresponse()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        newest = 0
        while line := self._answer.readline().decode():
            now = time.perf_counter_ns()
            for said in sorted({int(one) for one in PROBE.findall(line)}):
                if said > newest:
                    newest = said
                    self.latencies.append((now - said) / 1e6)


def memory(pid: int) -> float:
    """Return the megabytes that a process and its guard hold."""
    children = subprocess.run(
        ["pgrep", "-P", str(pid), "-f", "guard.py"], capture_output=True, text=True, check=False
    )
    total = 0
    for one in [str(pid), *children.stdout.split()]:
        status = Path(f"/proc/{one}/status").read_text()
        total += int(re.findall(r"VmRSS:\s+(\d+)", status)[0])
    return total / 1024


def processor(pid: int) -> float:
    """Return the seconds of processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
