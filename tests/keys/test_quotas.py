"""A key may have a bounded number of bytes of events stored in a day; its calls are decided all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.people import key_quotas
from coordinator.actions.sessions import tool_calls
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.errors import QuotaReached, SignalboxError
from coordinator.identity.actors import key_actor_by_name
from coordinator.lib import fair_queue as turns
from coordinator.models import ApiKey, AuditLog, Event, KeyStorageDay, Session
from coordinator.operations.doctor import CheckLevel, upkeep
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.policy.rules.tool_rules import ALLOW, DENY, Ruling
from coordinator.sessions.events import NewEvent
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import rules
from tests.people import signed_in
from tests.served import Served

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
LIMIT = 1_000


@pytest.fixture
def _limit(settings: Any) -> None:
    settings.KEY_BYTES_PER_DAY = LIMIT
    Session.objects.create(session_id="s1", status="running", created_at=timezone.now())


class Writing:
    """Writers of several processes, whose clock is `now`."""

    def __init__(self, count: int = 1) -> None:
        self.now = NOON
        self.writers = [GroupWriter(lambda: None, clock=lambda: self.now) for _ in range(count)]

    async def write(self, caller: str, size: int, *, process: int = 0, session: str = "s1") -> Any:
        turns.CALLER.set(caller)
        event = NewEvent(event_type="note", session_id=session, timestamp="t", reason="x")
        try:
            return await self.writers[process].submit_events(
                [event], deadline=time.monotonic() + 60, size=size
            )
        except SignalboxError as refusal:
            return refusal


def run(work: Callable[[Writing], Any], processes: int = 1) -> Any:
    async def main() -> Any:
        writing = Writing(processes)
        for writer in writing.writers:
            writer.start()
        try:
            return await work(writing)
        finally:
            for writer in writing.writers:
                writer.stop()

    return asyncio.run(main())


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_limit")
class TestCounting:
    def test_a_key_at_its_limit_is_refused_until_the_day_ends_and_others_are_not(self) -> None:
        async def work(writing: Writing) -> Any:
            for _ in range(3):
                await writing.write("key:1", 400)
            refusal = await writing.write("key:1", 1)
            others = [await writing.write(caller, 1) for caller in ("key:2", "person:1", "")]
            writing.now += timedelta(hours=12)
            return refusal, others, await writing.write("key:1", 1)

        refusal, others, next_day = run(work)
        assert isinstance(refusal, QuotaReached)
        assert (refusal.status, refusal.retry_after) == (429, 12 * 3600 + 1)
        assert "It may write again from 2026-11-27 00:00 UTC." in str(refusal.detail)
        assert not any(isinstance(answer, SignalboxError) for answer in (*others, next_day))
        assert Event.objects.count() == 3 + 3 + 1
        stored = KeyStorageDay.objects.order_by("day", "key_id").values_list("key_id", "day", "bytes")
        assert list(stored) == [(1, "2026-11-26", 1_200), (2, "2026-11-26", 1), (1, "2026-11-27", 1)]

    def test_all_processes_add_to_one_sum_and_a_new_one_reads_it(self) -> None:
        async def work(writing: Writing) -> Any:
            first = [await writing.write("key:1", 400, process=process) for process in (0, 1, 0)]
            return (
                first,
                await writing.write("key:1", 1, process=0),
                await writing.write("key:1", 1, process=2),
            )

        first, refused, new_process = run(work, processes=3)
        assert not any(isinstance(answer, SignalboxError) for answer in first)
        assert isinstance(refused, QuotaReached)
        assert isinstance(new_process, QuotaReached)

    def test_what_is_not_written_is_not_counted(self) -> None:
        run(lambda writing: writing.write("key:1", 5_000, session="none"))
        assert not KeyStorageDay.objects.exists()

    def test_other_work_of_the_key_is_done(self) -> None:
        async def work(writing: Writing) -> Any:
            await writing.write("key:1", LIMIT)
            assert isinstance(await writing.write("key:1", 1), QuotaReached)
            return await writing.writers[0].perform_in_transaction(
                lambda: "done", deadline=time.monotonic() + 60
            )

        assert run(work) == "done"

    def test_no_limit_counts_nothing(self, settings: Any) -> None:
        settings.KEY_BYTES_PER_DAY = 0
        run(lambda writing: writing.write("key:1", 10**9))
        assert not KeyStorageDay.objects.exists()

    def test_sums_of_days_long_past_are_deleted(self) -> None:
        for days in (0, 30, 40):
            KeyStorageDay.objects.create(key_id=1, day=f"{NOON - timedelta(days=days):%Y-%m-%d}", bytes=1)
        key_quotas.delete_old_quota_days(NOON)
        assert KeyStorageDay.objects.count() == 2


@pytest.mark.django_db
def test_people_see_which_key_has_reached_its_limit(settings: Any) -> None:
    settings.KEY_BYTES_PER_DAY = 1024 * 1024
    now = timezone.now()
    for name, size in (("flooding", 3 * 1024 * 1024), ("quiet", 2_048)):
        key = ApiKey.objects.create(name=name, prefix="sbx_", key_hash=name, scopes=["agent"], created_at=now)
        KeyStorageDay.objects.create(key_id=key.pk, day=f"{now.astimezone(UTC):%Y-%m-%d}", bytes=size)
    text = signed_in("admin").get("/ui/keys/").content.decode()
    assert text.count("limit reached") == 1
    assert "3.0\xa0MB" in text
    check = upkeep.check_key_quotas(now)
    assert (check.level, "flooding" in check.message, "quiet" in check.message) == (
        CheckLevel.WARN,
        True,
        False,
    )


@pytest.mark.served
def test_over_http_it_is_said_and_calls_are_still_decided(serve: Callable[..., Served]) -> None:
    served = serve(SIGNALBOX_KEY_MIB_PER_DAY="1")
    rules(
        served,
        {"tool": "Bash", "verdict": "deny", "reason": "Never."},
        {"tool": "Edit", "verdict": "ask", "deny_at_deadline": True},
    )
    claude = Claude(served, wait="1")
    claude.prompt("Begin.")
    agent = served.client("agent")
    (session_id,) = served.sql("SELECT session_id FROM sessions")[0]
    event = {"event_type": "note", "session_id": session_id, "timestamp": "t", "reason": "x" * 600_000}
    answers = [agent.post("/api/events", json=[event]) for _ in range(6)]
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) > 0
    assert "limit (SIGNALBOX_KEY_MIB_PER_DAY)" in answers[-1].json()["detail"]
    assert served.sql("SELECT count(*) FROM events WHERE event_type = 'note'")[0][0] <= 3
    assert claude.before(claude.new_call("Bash", {"command": "ls"}))["permissionDecision"] == "deny"
    assert claude.before(claude.new_call("Edit", {"file_path": "/x"}))["permissionDecision"] == "deny"
    assert claude.before(claude.new_call("Read", {"file_path": "/x"})) == {}
    assert served.client("operator").get("/sessions").status_code == 200


@pytest.mark.served
def test_a_budget_that_cannot_be_counted_any_more_asks_about_each_call(serve: Callable[..., Served]) -> None:
    served = serve(SIGNALBOX_KEY_MIB_PER_DAY="1")
    budget = {"reach": "everything", "name": "", "measure": "calls", "span": "session"}
    form = budget | {"amount": "1000", "at_limit": "ask"}
    assert served.sign_in("admin").post("/ui/budgets/add/", data=form).status_code == 200
    claude = Claude(served, wait="1")
    claude.prompt("Begin.")
    assert claude.before(claude.new_call("Bash", {"command": "ls"})) == {}
    agent = served.client("agent")
    (session_id,) = served.sql("SELECT session_id FROM sessions")[0]
    event = {"event_type": "note", "session_id": session_id, "timestamp": "t", "reason": "x" * 600_000}
    assert [agent.post("/api/events", json=[event]) for _ in range(6)][-1].status_code == 429
    assert claude.before(claude.new_call("Bash", {"command": "ls"}))["permissionDecision"] == "deny"
    ((why,),) = served.sql("SELECT justification FROM permission_requests")
    assert "cannot be counted: the key has stored as much today as it may" in why


@pytest.mark.django_db
@pytest.mark.usefixtures("_limit")
def test_a_key_over_its_limit_fills_no_audit_log_with_denials() -> None:
    """What was allowed is written each time: nothing else tells of it any more."""
    made = ApiKey.objects.create(name="loop", prefix="sbx_", key_hash="x", scopes=["agent"], created_at=NOON)
    call = ToolCallRequest("PreToolUse", "s1", "agent.one", 0, "Bash", {}, "", "claude-code")
    denied, allowed = Ruling(DENY, "No.", "rule 1"), Ruling(ALLOW, "Yes.", "rule 2")

    def written(event: str) -> int:
        return AuditLog.objects.filter(event_type=event, actor_id="key:loop").count()

    def note(at: datetime) -> None:
        for ruling in (denied, allowed):
            tool_calls.audit_policy_ruling(call, ruling, actor=key_actor_by_name("loop"), now=at)

    for second in range(3):
        note(NOON + timedelta(seconds=second))
    assert written("TOOL_CALL_DENIED") == 3
    KeyStorageDay.objects.create(key_id=made.pk, day=f"{NOON:%Y-%m-%d}", bytes=LIMIT)
    for second in range(10, 200):
        note(NOON + timedelta(seconds=second))
    assert written("TOOL_CALL_DENIED") == 3 + 3
    assert written("TOOL_CALL_ALLOWED") == 3 + 190
    tool_calls.audit_policy_ruling(
        call, denied, actor=key_actor_by_name("another"), now=NOON + timedelta(seconds=200)
    )
    assert AuditLog.objects.filter(actor_id="key:another").count() == 1
