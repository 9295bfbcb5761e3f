"""Fills a database with one session, run and runner in each state there is: `python -m tests.gallery.states`.

Reads the environment of the server it fills for (tests/gallery/__main__.py). Ids are the states' names, so that
the list of pages can name them.
"""

from __future__ import annotations

import base64
import os
import struct
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import django

BATCH = 5_000
LONG = 100_000  # events of the longest session

SAID = """Two things were wrong, and **both** are mended:

1. The total was rounded once, *after* the sum.
2. `apply_discount` ignored the currency.

| case | before | after |
|---|---:|---:|
| 2 of 9.995 | 19.99 | 20.00 |
| voucher in USD | 4.10 | refused |

```python
def total(items: list[Item], *, currency: str = "EUR") -> Decimal:
    # round each line: the invoice does so, too
    return sum((item.amount.quantize(CENT) for item in items), Decimal(0))
```

> The test was right; the change was not.

See the [rules for rounding](https://example.org/rounding) for why."""

OLD = (
    "def total(items):\n    total = Decimal(0)\n    for item in items:\n"
    "        total += item.amount\n    return total\n"
)
NEW = (
    "def total(items, *, currency='EUR'):\n    total = Decimal(0)\n    for item in items:\n"
    "        total += item.amount.quantize(CENT)\n    return total\n"
)


def picture(red: int, green: int, blue: int) -> str:
    """Return a small PNG of one colour with a lighter square in it, in base64."""
    pale = bytes((min(red + 90, 255), min(green + 90, 255), min(blue + 90, 255)))
    plain = bytes((red, green, blue))
    lines = b"".join(
        b"\0" + b"".join(pale if 40 < y < 80 and 60 < x < 180 else plain for x in range(240))
        for y in range(120)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 240, 120, 8, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )
    return base64.b64encode(png).decode()


class Telling:
    """A session that is told event by event, on a clock of its own."""

    def __init__(self, session_id: str, began: datetime) -> None:
        self.session_id, self.now, self.calls = session_id, began, 0
        self.pairs: list[tuple[Any, Any]] = []

    def event(
        self, event_type: str, after: float = 1.0, *, context: dict[str, Any] | None = None, **values: Any
    ) -> None:
        """Add an event, `after` seconds from the one before."""
        from coordinator.lib import instants
        from coordinator.models import Event, EventContext

        self.now += timedelta(seconds=after)
        row = Event(
            session_id=self.session_id,
            event_type=event_type,
            timestamp=instants.format_canonical_instant(self.now),
            **values,
        )
        kept = {
            "session_id": self.session_id,
            "instant_us": instants.instant_to_microseconds(self.now),
            "received_at": self.now,
            **(context or {}),
        }
        self.pairs.append((row, EventContext(**kept)))

    def say(self, role: str, text: str, after: float = 2.0) -> None:
        """Add words."""
        self.event("message", after, role=role, content=[{"type": "text", "text": text}])

    def call(
        self,
        tool: str,
        given: Any,
        came: Any = None,
        *,
        error: str | None = None,
        took: float | None = 0.6,
        subagent: str | None = None,
    ) -> None:
        """Add a call and its result; `took=None` is a call that still runs."""
        self.calls += 1
        about = {"tool_use_id": f"toolu_{self.session_id}_{self.calls}", "subagent": subagent}
        self.event("pre_tool", 0.4, tool_name=tool, tool_input=given, context=about)
        if took is not None:
            done = about | {"duration_ms": round(took * 1000)}
            self.event(
                "post_tool",
                took,
                tool_name=tool,
                tool_input=given,
                tool_output=came,
                error=error,
                context=done,
            )

    def write(self) -> None:
        """Write what was told; at once, or the server would give the events contexts of its own meanwhile."""
        from django.db import transaction

        from coordinator.models import Event, EventContext

        for start in range(0, len(self.pairs), BATCH):
            part = self.pairs[start : start + BATCH]
            with transaction.atomic():
                rows = Event.objects.bulk_create([row for row, _ in part])
                for row, (_, context) in zip(rows, part, strict=True):
                    context.event_id = row.pk
                EventContext.objects.bulk_create([context for _, context in part])


def session(session_id: str, status: str, began: datetime, **values: Any) -> Telling:
    """Write a session's row and return its telling."""
    from coordinator.models import Session

    kept = {
        "agent_name": "acme-backend-engineer",
        "hostname": "ci-runner-03",
        "project_dir": "/srv/work/billing",
    }
    Session.objects.create(session_id=session_id, status=status, created_at=began, **(kept | values))
    return Telling(session_id, began)


def sessions(now: datetime) -> None:
    """Write a session in each state."""
    session("ses_new", "running", now - timedelta(seconds=40))
    session("ses_silent", "finished", now - timedelta(hours=2))
    ten(session("ses_ten", "finished", now - timedelta(minutes=32)), "completed")
    ten(session("ses_failed", "error", now - timedelta(minutes=50)), "failed")
    ten(session("ses_stopped", "stopped", now - timedelta(minutes=71)), "stopped")
    ten(
        session("ses_odd", "archived by hand", now - timedelta(days=400), agent_name=None, hostname=None),
        "odd",
    )
    running = session("ses_running", "running", now - timedelta(minutes=6))
    running.say("user", "Please make the nightly import faster.")
    running.say("assistant", "I'll profile it first.")
    running.call(
        "Bash", {"command": "python -X importtime -m importer --dry-run"}, "1,204 rows in 48 s", took=48
    )
    running.call(
        "Bash", {"command": "pytest -q tests/importer", "description": "The importer's tests"}, took=None
    )
    running.write()
    looks(session("ses_looks", "running", now - timedelta(minutes=14)))
    long(session("ses_long", "finished", now - timedelta(hours=14)))


def ten(told: Telling, ending: str) -> None:
    """Tell a session of ten events that ends so."""
    told.event("session_start")
    told.say("user", "The invoice total is a cent off. Find out why.")
    told.say("assistant", "I'll look at how it is rounded.")
    told.call("Read", {"file_path": "/srv/work/billing/totals.py"}, {"file": {"content": OLD}})
    bad = "Exit code 1\nFAILED tests/test_totals.py::test_rounding - assert Decimal('19.99') == Decimal('20.00')"
    told.call(
        "Bash",
        {"command": "pytest -q"},
        error=bad if ending == "failed" else None,
        came="42 passed in 6.51s",
        took=6.5,
    )
    told.say("assistant", SAID)
    if ending == "failed":
        told.event("session_stop", exit_code=1, reason="failed", error="The executor ended with code 1")
    elif ending == "odd":
        told.event("checkpoint", content={"label": "before the migration", "files": 12})
    else:
        told.event("session_stop", exit_code=0, reason=ending)
    told.write()


def looks(told: Telling) -> None:
    """Tell a session in which every kind of call and message occurs."""
    told.event("session_start")
    told.event(
        "message",
        role="user",
        content=[
            {"type": "text", "text": "Here is what the customer sees. Why is the total red?"},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": picture(150, 40, 40)},
            },
        ],
    )
    told.event(
        "message",
        role="assistant",
        content=[
            {
                "type": "thinking",
                "thinking": "The red must come from `validate`, which refuses a *negative* line.",
            },
            {"type": "text", "text": "I'll look at the code, then at the log."},
        ],
    )
    todos = [("Reproduce", "completed"), ("Find the cause", "in_progress"), ("Mend and test", "pending")]
    told.call(
        "TodoWrite", {"todos": [{"content": text, "status": status} for text, status in todos]}, took=0.05
    )
    told.call(
        "Bash",
        {"command": "git log --oneline -5 -- billing/totals.py", "description": "What changed lately"},
        {"stdout": "9f3c2ab Sum before rounding\n41d90e7 Add limit\n", "stderr": ""},
        took=0.2,
    )
    told.call(
        "Bash",
        {"command": "make test 2>&1 | tail -400"},
        {
            "stdout": "\n".join(
                f"tests/test_{n}.py::test_case_{n} PASSED [{n / 4:5.1f}%]" for n in range(400)
            ),
            "stderr": "",
        },
        took=31,
    )
    told.call(
        "Bash",
        {"command": "pytest -q tests/test_totals.py"},
        error="Exit code 1\nFAILED tests/test_totals.py::test_rounding\n1 failed, 41 passed in 6.84s",
        took=6.9,
    )
    told.call(
        "Read",
        {"file_path": "/srv/work/billing/totals.py", "offset": 1, "limit": 40},
        {"file": {"content": OLD * 3}},
    )
    told.call(
        "Grep",
        {"pattern": "def total", "path": "/srv/work", "output_mode": "content"},
        {
            "mode": "content",
            "content": "billing/totals.py:1:def total(items):\nshop/cart.py:88:def total(self):",
        },
    )
    told.call(
        "Glob",
        {"pattern": "**/*_totals.py"},
        {"filenames": ["a_totals.py", "deep/er/b_totals.py"], "numFiles": 2},
    )
    told.call(
        "Edit",
        {"file_path": "/srv/work/billing/totals.py", "old_string": OLD, "new_string": NEW},
        {"filePath": "/srv/work/billing/totals.py"},
    )
    told.call(
        "Write",
        {
            "file_path": "/srv/work/billing/" + "a_very_long_directory_name/" * 4 + "rounding.py",
            "content": NEW * 12,
        },
        "File created",
    )
    told.call(
        "WebSearch",
        {"query": "decimal quantize ROUND_HALF_UP invoice lines"},
        {"results": [{"title": "Rounding in invoices", "url": "https://example.org/rounding"}]},
        took=1.8,
    )
    told.call(
        "WebFetch",
        {"url": "https://example.org/rounding", "prompt": "How is each line rounded?"},
        "Each line is rounded half up.",
        took=2.4,
    )
    told.call(
        "mcp__github__create_issue",
        {"repo": "acme/billing", "title": "Totals are a cent off", "labels": ["bug"]},
        [{"type": "text", "text": "Created issue #4711"}],
        took=0.9,
    )
    told.call(
        "mcp__browser__screenshot",
        {"url": "https://shop.example"},
        [{"type": "image", "mimeType": "image/png", "data": picture(30, 90, 140)}],
        took=3.1,
    )
    told.call(
        "Task",
        {
            "subagent_type": "reviewer",
            "description": "Review the change",
            "prompt": "Read the diff and look for **rounding** mistakes.",
        },
        "No mistakes found.",
        took=74,
    )
    told.call(
        "Read",
        {"file_path": "/srv/work/billing/tests.py"},
        {"file": {"content": "import pytest\n"}},
        subagent="reviewer",
    )
    told.call(
        "SomethingNew",
        {"depth": 3, "options": {"strict": True}, "list": [1, 2, 3]},
        {"ok": True, "nested": {"a": [1, {"b": None}]}},
    )
    told.event("turn_end")
    told.event("a_type_of_tomorrow", content={"hello": "world"})
    told.say("user", "ok " * 30 + "unbroken" * 40, after=240)
    told.say("assistant", SAID + "\n\n" + "A paragraph of ordinary length that goes on for a while. " * 40)
    asks(told)
    told.call("Bash", {"command": "git push origin fix/rounding"}, took=None)
    told.write()
    child = session(
        "ses_child",
        "finished",
        told.now - timedelta(minutes=3),
        parent_session_id="ses_looks",
        agent_name="acme-reviewer",
    )
    ten(child, "completed")


def asks(told: Telling) -> None:
    """Add an approval that was given, one that was denied and one that waits."""
    from django.contrib.auth.models import User

    from coordinator.actions import approvals
    from coordinator.identity.actors import key_actor_by_name
    from coordinator.policy.requests.approvals import PermissionSubject, Validity

    approver = User.objects.get(username="approver")
    for number, (command, verdict) in enumerate(
        (
            ("git push origin fix/rounding", "approved"),
            ("rm -rf /srv/work/.cache", "denied"),
            ("systemctl restart billing", ""),
        )
    ):
        subject = PermissionSubject("claude-code", "ProcessExecution", command, "Bash", {"command": command})
        told.now += timedelta(seconds=30)
        ask = approvals.NewPermissionRequest(
            subject=subject,
            justification="The fix is ready; this lets people review it.",
            session_id=told.session_id,
            agent_id="agent.acme.engineer",
            deadline=told.now + timedelta(hours=1),
        )
        asked = approvals.request_permission(ask, actor=key_actor_by_name("gallery"), now=told.now)
        if verdict:
            told.now += timedelta(seconds=25 + number)
            approvals.decide_request(
                asked.request.request_id,
                person=approver,
                verdict=verdict,
                reason="Not the cache, please." if verdict == "denied" else None,
                validity=Validity.ONCE,
                now=told.now,
            )


def long(told: Telling) -> None:
    """Tell a session of LONG events: bursts of work with pauses, a bad hour in the middle, some messages."""
    tools = ("Bash", "Read", "Grep", "Edit", "mcp__github__get_file")
    told.event("session_start")
    number = 0
    while len(told.pairs) < LONG - 1:
        number += 1
        tool = tools[number * 7 % len(tools)]
        bad = number % 1_000 == 0 or (24_000 < number < 24_600 and number % 9 == 0)
        pause = 2_400 if number in (9_000, 31_000) else 0.02
        if number % 40 == 0:
            told.say(
                "user" if number % 400 == 0 else "assistant",
                f"Step {number}: going on with **module {number % 97}**.",
                after=pause,
            )
        given = (
            {"command": f"make step-{number}"}
            if tool == "Bash"
            else {"file_path": f"/srv/work/{number % 97}.py"}
        )
        told.call(
            tool,
            given,
            "done",
            error=f"Exit code {number % 7 + 1}" if bad else None,
            took=0.1 + number % 11 / 20,
        )
    told.event("session_stop", exit_code=0, reason="completed")
    told.write()


def runs_and_runners(now: datetime) -> None:
    """Write runs and runners in each state."""
    from coordinator.lib import instants
    from coordinator.lib.identifiers import derive_runner_id
    from coordinator.models import Run, Runner

    def runner(host: str, heard: timedelta, **values: Any) -> str:
        runner_id = derive_runner_id(host, "/srv/work", "coding")
        Runner.objects.create(
            runner_id=runner_id,
            hostname=host,
            project_dir="/srv/work",
            executor_profile="coding",
            tags=["python", "docker"],
            registered_at=now - timedelta(days=3),
            last_heartbeat=now - heard,
            **values,
        )
        return runner_id

    busy = runner("busy-host", timedelta(seconds=3))
    runner("idle-host", timedelta(seconds=8))
    runner("stale-host", timedelta(minutes=9))
    runner("gone-host", timedelta(days=2))
    runner("told-to-go-host", timedelta(seconds=5), deregistered_at=now)

    def run(name: str, session_id: str, status: str, **values: Any) -> None:
        about = {
            "type": "start_session",
            "agent_name": "acme-backend-engineer",
            "prompt": f"The run that is {name}: please mend the totals.",
        }
        since = values.get("claimed_at") or values.get("started_at")
        asked = datetime.fromisoformat(since) if since else now - timedelta(minutes=9)
        times = {"created_at": asked - timedelta(seconds=4)}
        Run.objects.create(
            run_id=f"run_{name}", session_id=session_id, status=status, **(about | times | values)
        )

    at = lambda minutes: instants.format_canonical_instant(now - timedelta(minutes=minutes))  # noqa: E731
    session("ses_waits", "pending", now - timedelta(minutes=9))
    run("queued", "ses_waits", "pending", demands={"tags": ["gpu"]}, timeout_at=at(-20))
    run("next", "ses_silent", "pending", type="resume_session", timeout_at=at(-20))
    run("behind", "ses_running", "pending", type="resume_session", timeout_at=at(-20))
    run(
        "overdue", "ses_ten", "pending", type="resume_session", demands={"hostname": "mars"}, timeout_at=at(3)
    )
    run("claimed", "ses_new", "claimed", runner_id=busy, claimed_at=at(1))
    run("running", "ses_running", "running", runner_id=busy, claimed_at=at(6), started_at=at(6))
    run("stopping", "ses_looks", "stopping", runner_id=busy, claimed_at=at(14), started_at=at(14))
    run(
        "done",
        "ses_ten",
        "completed",
        runner_id=busy,
        claimed_at=at(30),
        started_at=at(30),
        completed_at=at(27),
    )
    run(
        "failed",
        "ses_failed",
        "failed",
        runner_id=busy,
        claimed_at=at(50),
        started_at=at(50),
        completed_at=at(44),
        error="Executor exited with code 1: model overloaded, gave up after 5 tries",
    )
    run(
        "stopped",
        "ses_stopped",
        "stopped",
        runner_id=busy,
        claimed_at=at(71),
        started_at=at(71),
        completed_at=at(66),
    )


def main() -> None:
    """Fill the database."""
    now = datetime.now(UTC)
    sessions(now)
    runs_and_runners(now)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    main()
