"""Retention takes what is old, ended and no longer in force; nothing of people's unless it is told to."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from coordinator.actions import approvals
from coordinator.actions.chat import chat
from coordinator.actions.chat.chat import ChatUpload
from coordinator.actions.mcp import gateway_upkeep
from coordinator.actions.sessions.events import record_events
from coordinator.actions.upkeep import idempotency, pruning
from coordinator.actions.upkeep.pruning import (
    PrunableSize,
    RetentionRule,
    apply_retention_rule,
    build_retention_rules,
)
from coordinator.models import (
    AuditLog,
    ChatAttachment,
    ChatMessage,
    Event,
    EventContext,
    GatewayCall,
    IdempotencyKey,
    Notification,
    NotificationTarget,
    PermissionRequest,
    Run,
    Session,
)
from coordinator.operations.jobs import run_and_list_due_jobs
from coordinator.sessions.events import DedupedEvent, NewEvent
from tests.approvals.factories import asked, person, stored
from tests.chat.rows import ANNA, add_agent, say

pytestmark = pytest.mark.django_db(transaction=True)

# The audit log's own trigger compares with the database's clock.
NOW = datetime.now(UTC).replace(microsecond=0)
OLD = NOW - timedelta(days=40)


@pytest.fixture(autouse=True)
def _without_rests(monkeypatch: pytest.MonkeyPatch, unpruned: None) -> None:
    monkeypatch.setattr(pruning, "REST_PER_WORK", 0)


def message(session_id: str, at: datetime, **values) -> DedupedEvent:
    blocks = [{"type": "text", "text": "a long story"}]
    told = {"event_type": "message", "session_id": session_id, "timestamp": at.isoformat(), "role": "user"}
    return DedupedEvent(content=blocks, **({"origin": at.isoformat()} | told | values))


def session(name: str, *, at: datetime = OLD, status: str = "finished", events: int = 2, **values) -> Session:
    row = Session.objects.create(session_id=name, status=status, created_at=at, **values)
    item = {"event_type": "message", "session_id": name, "timestamp": at.isoformat(), "role": "user"}
    blocks = [{"type": "text", "text": "a long story"}]
    record_events([NewEvent(content=blocks, **item) for _ in range(events)], at)
    return row


def rule_of(name: str, days: float = 30) -> RetentionRule:
    return next(one for one in build_retention_rules(**{name.replace("-", "_"): days}) if one.name == name)


def pruned(name: str, days: float = 30, *, write: bool = True, now: datetime = NOW) -> PrunableSize:
    return apply_retention_rule(rule_of(name, days), now, write=write)


def test_people_s_data_is_kept_for_ever_unless_told_otherwise() -> None:
    session("ses_old")
    stored("denied", created_at=OLD)
    add_agent()
    say("hello", now=OLD)
    run_and_list_due_jobs(NOW)
    pruning.prune_slice_and_drop_partitions(NOW)
    assert (Session.objects.count(), PermissionRequest.objects.count(), ChatMessage.objects.count()) == (
        1,
        1,
        1,
    )


def test_sessions_go_once_they_are_ended_old_and_nothing_happens_in_them() -> None:
    session("ses_gone")
    session("ses_running", status="running")
    session("ses_young", at=NOW)
    session("ses_resumed", last_resumed_at=NOW)
    session("ses_spoke_lately")
    record_events([NewEvent(event_type="x", session_id="ses_spoke_lately", timestamp=NOW.isoformat())], NOW)
    session("ses_parent")
    session("ses_child", status="running", parent_session_id="ses_parent")
    session("ses_waits")
    Run.objects.create(
        run_id="run_1", session_id="ses_waits", type="t", prompt="p", status="pending", created_at=OLD
    )

    before = Session.objects.count()
    told = pruned("sessions", write=False)
    assert Session.objects.count() == before
    assert (told.rows, told.bytes > 50) == (3, True)
    # Where a part of the events table goes as a whole, its files are what is freed, not the texts alone.
    freed = pruned("sessions")
    assert (freed.rows, freed.bytes >= told.bytes) == (told.rows, True)
    assert before - Session.objects.count() == 1
    assert not Session.objects.filter(pk="ses_gone").exists()
    assert not Event.objects.filter(session_id="ses_gone").exists()
    assert not EventContext.objects.filter(session_id="ses_gone").exists()
    assert AuditLog.objects.get(event_type="SESSION_DELETED").actor_id == "system:prune"
    assert AuditLog.objects.get(event_type="DATA_PRUNED").metadata["rows"] == 3
    assert pruned("sessions") == PrunableSize()


def test_a_large_session_goes_in_small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "STEP", 50)
    monkeypatch.setattr(pruning.iterate_primary_key_pages, "__defaults__", (50,))
    session("ses_large", events=230)
    deleted: list[int] = []
    plain = pruning.run_pruning_step_and_sleep
    monkeypatch.setattr(
        pruning, "run_pruning_step_and_sleep", lambda work: deleted.append(plain(work)) or deleted[-1]
    )
    assert pruned("sessions").rows == 231
    assert deleted == [50, 50, 50, 50]
    assert "200 events were removed earlier" in AuditLog.objects.get(event_type="SESSION_DELETED").reason


def resume(session_id: str) -> None:
    Run.objects.create(
        run_id=f"run_{session_id}",
        session_id=session_id,
        type="t",
        prompt="p",
        status="pending",
        created_at=NOW,
    )


def speak(session_id: str) -> None:
    record_events([NewEvent(event_type="x", session_id=session_id, timestamp=NOW.isoformat())], NOW)


@pytest.mark.parametrize("come_alive", [resume, speak])
def test_a_session_that_comes_alive_while_old_ones_go_stays(
    monkeypatch: pytest.MonkeyPatch, come_alive: Callable[[str], None]
) -> None:
    monkeypatch.setattr(pruning, "STEP", 50)
    monkeypatch.setattr(pruning.iterate_primary_key_pages, "__defaults__", (50,))
    sizes = {"ses_large": 120, "ses_small": 2}
    for name, events in sizes.items():
        session(name, events=events)

    def measure(page: list[str]) -> PrunableSize:  # between reading a page and the first step
        for name in page:
            come_alive(name)
        return PrunableSize(len(page))

    said = Event.objects.count()
    assert apply_retention_rule(
        replace(rule_of("sessions"), measure=measure), NOW, write=True
    ) == PrunableSize(0)
    assert set(Session.objects.values_list("pk", flat=True)) >= set(sizes)
    assert Event.objects.count() >= said
    assert not AuditLog.objects.filter(event_type="SESSION_DELETED").exists()


@pytest.mark.parametrize("come_alive", [resume, speak])
def test_a_session_that_comes_alive_between_two_steps_keeps_what_it_has_left(
    monkeypatch: pytest.MonkeyPatch, come_alive: Callable[[str], None]
) -> None:
    monkeypatch.setattr(pruning, "STEP", 50)
    monkeypatch.setattr(pruning.iterate_primary_key_pages, "__defaults__", (50,))
    session("ses_large", events=120)
    plain = pruning.run_pruning_step_and_sleep

    def step(work: Callable[[], int]) -> int:
        done = plain(work)
        come_alive("ses_large")
        return done

    monkeypatch.setattr(pruning, "run_pruning_step_and_sleep", step)
    assert pruned("sessions").rows == 50
    assert Event.objects.filter(session_id="ses_large", role="user").count() == 70


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time")
def test_while_a_step_takes_a_session_s_events_nobody_adds_one() -> None:
    session("ses_old")
    refused: list[str] = []

    def add() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '100ms'")
            speak("ses_old")
        except OperationalError as problem:
            refused.append(str(problem))
        finally:
            connection.close()

    with transaction.atomic():
        pruning.lock_and_require_prunable_session("ses_old", NOW)
        other = threading.Thread(target=add)
        other.start()
        other.join()
    assert ["lock timeout" in problem for problem in refused] == [True]


def test_bodies_go_and_the_event_stays() -> None:
    session("ses_a", events=3)
    session("ses_b", at=NOW, events=1)
    call = {
        "event_type": "post_tool",
        "session_id": "ses_a",
        "timestamp": OLD.isoformat(),
        "tool_name": "Bash",
    }
    record_events([NewEvent(**call, tool_input={"command": "cat /secret"}, tool_output="hush")], OLD)
    assert pruned("event-bodies", write=False).rows == 4
    pruning.BodyPruningProgress.upto = 0
    assert pruned("event-bodies").rows == 4
    kept = Event.objects.get(tool_name="Bash")
    assert (kept.tool_input, kept.tool_output, kept.content) == (pruning.PRUNED, pruning.PRUNED, None)
    assert Event.objects.filter(session_id="ses_a").earliest("id").content == [
        {"type": "text", "text": "(pruned)"}
    ]
    assert Event.objects.get(session_id="ses_b").content[0]["text"] == "a long story"
    pruning.BodyPruningProgress.upto = 0
    assert pruned("event-bodies") == PrunableSize()


@pytest.mark.parametrize("step", [500, 2])
def test_what_is_young_between_imported_events_goes_once_it_is_old(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(pruning, "STEP", step)
    session("ses_young", at=NOW, events=5)
    for days in (1, 2):
        later = NOW + timedelta(days=days)
        record_events([message("ses_young", later)], later)
    session("ses_imported")
    record_events([message("ses_imported", OLD, origin="line 1", late=True)], NOW)
    left = Event.objects.exclude(content=pruning.MARKS["content"]).filter(content__isnull=False)
    assert pruned("event-bodies").rows == 3
    assert set(left.values_list("session_id", flat=True)) == {"ses_young"}
    assert pruned("event-bodies", now=NOW + timedelta(days=31.5)).rows == 6
    assert left.count() == 1
    assert pruned("event-bodies", now=NOW + timedelta(days=40)).rows == 1
    assert pruned("event-bodies", now=NOW + timedelta(days=40)) == PrunableSize()


def test_requests_that_are_in_force_or_wait_stay() -> None:
    alice = person()
    stored("denied", request_id="gone", created_at=OLD)
    waiting = asked(now=OLD)
    lasting = asked(now=OLD, target_resource="other")
    approvals.decide_request(
        lasting.request_id,
        person=alice,
        verdict="approved",
        validity="until-revoked",
        scope="everywhere",
        now=OLD,
    )
    assert pruned("requests").rows == 1
    left = set(PermissionRequest.objects.values_list("request_id", flat=True))
    assert left == {waiting.request_id, lasting.request_id}


def told_to_wait(
    session_id: str, *, asked_at: datetime, approved_at: datetime | None = None
) -> PermissionRequest:
    """Return the request of a call that was told to wait, as it stands once it was approved."""
    request = asked(
        now=asked_at,
        session_id=session_id,
        folder="/srv",
        host="box",
        outlasts=True,
        waits_until=asked_at + timedelta(minutes=10),
        deadline=asked_at + timedelta(days=1),
        target_resource=session_id,
    )
    if approved_at is not None:
        approvals.decide_request(
            request.request_id, person=person(session_id), verdict="approved", now=approved_at
        )
    return request


def test_an_approval_stays_while_a_waiting_call_may_use_it(settings) -> None:
    hour = timedelta(hours=1)
    usable = told_to_wait("ses_1", asked_at=NOW - 25 * hour, approved_at=NOW - 2 * hour)
    over = told_to_wait("ses_2", asked_at=NOW - 51 * hour, approved_at=NOW - 49 * hour)
    assert pruned("requests", days=1).rows == 1
    assert pruned("requests", days=1 / 24).rows == 0
    assert [row.pk for row in PermissionRequest.objects.all()] == [usable.pk]
    settings.HELD_FOR = 3600
    assert pruned("requests", days=1 / 24).rows == 1
    assert over.pk != usable.pk


def test_a_request_goes_so_many_days_after_it_was_closed() -> None:
    request = asked(now=OLD)
    approvals.decide_request(
        request.request_id, person=person(), verdict="denied", now=NOW - timedelta(days=29)
    )
    assert pruned("requests").rows == 0
    assert pruned("requests", days=28).rows == 1


def test_the_request_of_a_gateway_call_that_waits_stays() -> None:
    request = asked(now=OLD)
    approvals.decide_request(request.request_id, person=person(), verdict="approved", now=OLD)
    names = ("agent_id", "server_id", "tool_name", "call_key", "arguments_digest", "definition_digest")
    call = GatewayCall.objects.create(
        call_id="call_1",
        request_id=request.request_id,
        key_id=1,
        policy_version="1",
        state="waiting",
        created_at=OLD,
        expires_at=NOW + timedelta(days=1),
        **dict.fromkeys(names, "x"),
    )
    assert pruned("requests").rows == 0
    gateway_upkeep.clean_gateway_tables(NOW + timedelta(hours=1))
    assert GatewayCall.objects.filter(pk=call.pk).exists()
    GatewayCall.objects.update(state="done")
    assert pruned("requests").rows == 1


def test_however_many_calls_run_each_whose_time_is_over_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_upkeep, "MOST_ROWS", 2)
    names = ("agent_id", "server_id", "tool_name", "call_key", "arguments_digest", "definition_digest")
    for number in range(7):
        GatewayCall.objects.create(
            call_id=f"call_{number}",
            key_id=1,
            policy_version="1",
            state="running",
            created_at=NOW,
            expires_at=NOW + timedelta(days=1),
            run_until=NOW + timedelta(minutes=5 if number in (0, 3) else 1),
            **dict.fromkeys(names, "x"),
        )
    gateway_upkeep.clean_gateway_tables(NOW + timedelta(minutes=2))
    assert set(GatewayCall.objects.filter(state="lost").values_list("pk", flat=True)) == {
        f"call_{number}" for number in (1, 2, 4, 5, 6)
    }


def test_a_session_stays_while_its_call_waits_or_may_still_run() -> None:
    session("ses_asks")
    session("ses_may_run")
    session("ses_gone")
    told_to_wait("ses_asks", asked_at=NOW)
    told_to_wait("ses_may_run", asked_at=NOW - timedelta(hours=2), approved_at=NOW)
    pruned("sessions")
    assert set(Session.objects.values_list("pk", flat=True)) == {"ses_asks", "ses_may_run"}


def test_a_message_that_was_not_sent_yet_stays() -> None:
    target = NotificationTarget.objects.create(person="alice", kind="email", address="a@b.c", created_at=OLD)
    for state in ("waiting", "sent"):
        Notification.objects.create(target=target, request_id="r", created_at=OLD, state=state)
    assert pruned("notifications").rows == 1
    assert Notification.objects.get().state == "waiting"


def test_chat_goes_with_its_files(tmp_path: Path, settings) -> None:
    settings.DATA_DIR = tmp_path
    add_agent()
    say("new", now=NOW)
    upload = ChatUpload(io.BytesIO(b"x" * 200_000), "big.bin", "application/octet-stream")
    chat.submit_chat_message("agent.robot", [], speaker=ANNA, files=[upload], now=OLD)
    assert len(list(tmp_path.rglob("*.bin"))) == 1
    assert pruned("chat", write=False).bytes > 200_000
    assert pruned("chat").rows == 1
    assert (ChatMessage.objects.count(), ChatAttachment.objects.count()) == (1, 0)
    assert not list(tmp_path.rglob("*.bin"))


def test_what_only_helps_the_machine_goes_by_itself() -> None:
    claim = idempotency.derive_idempotency_claim(caller="k", endpoint="/", key="1", content=b"")
    idempotency.save_idempotent_answer(claim, b"{}", NOW - timedelta(hours=25))
    fresh = idempotency.derive_idempotency_claim(caller="k", endpoint="/", key="2", content=b"")
    idempotency.save_idempotent_answer(fresh, b"{}", NOW - timedelta(hours=23))
    pruning.prune_slice_and_drop_partitions(NOW)
    assert IdempotencyKey.objects.count() == 1


def test_the_command_tells_first_and_then_does() -> None:
    session("ses_gone")
    out = io.StringIO()
    call_command("prune", "--sessions=30", "--dry-run", stdout=out)
    assert "Nothing was changed" in out.getvalue()
    assert Session.objects.count() == 1
    call_command("prune", "--sessions=30", stdout=out)
    assert Session.objects.count() == 0
    [line] = [line for line in out.getvalue().splitlines()[-8:] if line.startswith("sessions ")]
    assert line.split()[:4] == ["sessions", "30", "days", "3"]


def test_nothing_to_prune_takes_few_looks() -> None:
    with CaptureQueriesContext(
        connection,
    ) as seen:
        pruning.prune_slice_and_drop_partitions(NOW)
    assert len(seen) <= 4


@pytest.mark.parametrize("days", [1_000_000, 10**12])
def test_what_is_kept_for_longer_than_there_are_dates_is_kept_and_all_else_is_pruned(
    days: int, settings
) -> None:
    settings.KEEP_SESSIONS_DAYS = days
    settings.KEEP_REQUESTS_DAYS = 30
    session("ses_old")
    stored("denied", created_at=OLD)
    pruning.prune_slice_and_drop_partitions(NOW)
    assert (Session.objects.count(), PermissionRequest.objects.count()) == (1, 0)
    call_command("prune", f"--sessions={days}", stdout=io.StringIO())
    assert Session.objects.count() == 1


@pytest.mark.parametrize("days", ["-1", "nan"])
def test_days_that_are_no_number_of_days_are_refused(days: str) -> None:
    session("ses_young", at=NOW)
    with pytest.raises(CommandError, match="days"):
        call_command("prune", f"--sessions={days}", stdout=io.StringIO())
    assert Session.objects.count() == 1


def test_what_went_before_an_error_is_in_the_audit_log() -> None:
    """On SQLite housekeeping waits 0.4 s for the lock, and an error ends the rule between two of its steps."""
    for number in range(3):
        stored("denied", created_at=OLD, request_id=f"req_{number}")
    rule = rule_of("requests")
    removed: list[int] = []

    def remove_or_fail(page: list[int], before: datetime, now: datetime) -> int:
        if removed:
            raise OperationalError("database is locked")
        removed.append(rule.remove(page, before, now))
        return removed[0]

    small = replace(
        rule, pages=lambda before: ([pk] for page in rule.pages(before) for pk in page), remove=remove_or_fail
    )
    with pytest.raises(OperationalError):
        apply_retention_rule(small, NOW, write=True)
    assert PermissionRequest.objects.count() == 2
    assert AuditLog.objects.get(event_type="DATA_PRUNED").metadata["rows"] == 1
