from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from coordinator.models import Event, EventContext, PermissionContext, PermissionRequest, Run, Runner, Session
from coordinator.operations.doctor import shared_user
from coordinator.sessions.overview import load_dashboard_overview
from tests.people import signed_in

NOW = datetime.now(UTC).replace(microsecond=0)
pytestmark = pytest.mark.django_db


def session(number: int, status: str = "running", age: timedelta = timedelta()) -> Session:
    return Session.objects.create(session_id=f"ses_{number:012x}", status=status, created_at=NOW - age)


def ask(
    number: int, status: str = "pending", age: timedelta = timedelta(), **more: object
) -> PermissionRequest:
    return PermissionRequest.objects.create(
        request_id=f"req-{number}",
        created_at=NOW - age,
        plugin_id="mind.x",
        permission_type="FileWrite",
        justification="x",
        status=status,
        **more,
    )


def runner(number: int, silent: float, **more: object) -> Runner:
    heard = NOW - timedelta(seconds=silent)
    return Runner.objects.create(
        runner_id=f"lnch_{number:012x}",
        hostname="atlas",
        project_dir="/srv",
        executor_profile="p",
        registered_at=heard,
        last_heartbeat=heard,
        **more,
    )


def receive(where: Session, ages: list[timedelta]) -> None:
    for age in ages:
        event = Event.objects.create(session=where, event_type="message", timestamp="x")
        EventContext.objects.create(event=event, session_id=where.pk, instant_us=0, received_at=NOW - age)


def test_sessions_are_counted_by_status_those_at_work_first() -> None:
    for number, status in enumerate(["finished", "running", "odd", "running", "error"]):
        session(number, status)
    overview = load_dashboard_overview(NOW)
    assert list(overview.sessions_by_status.items()) == [
        ("running", 2),
        ("finished", 1),
        ("error", 1),
        ("odd", 1),
    ]
    assert (overview.sessions, overview.running_session_count) == (5, 2)


def test_requests_that_wait_are_counted_with_the_oldest() -> None:
    ask(1, age=timedelta(minutes=3))
    ask(2, age=timedelta(minutes=9))
    ask(3, "approved", approved_by="mara", approved_at=NOW)
    overview = load_dashboard_overview(NOW)
    assert overview.waiting_requests == 2
    assert overview.oldest_request == NOW - timedelta(minutes=9)
    assert [row.request_id for row in overview.waiting] == ["req-2", "req-1"]
    assert [row.request_id for row in overview.decisions] == ["req-3"]


def test_a_request_past_its_deadline_no_longer_waits() -> None:
    ask(1, expires_at=NOW - timedelta(seconds=1))
    assert load_dashboard_overview(NOW).waiting_requests == 0


def test_runs_are_counted_as_waiting_or_at_work() -> None:
    where = session(1)
    for number, status in enumerate(["pending", "claimed", "running", "stopping", "completed", "failed"]):
        Run.objects.create(
            run_id=f"run_{number}",
            session=where,
            type="start_session",
            prompt="x",
            status=status,
            created_at=NOW,
        )
    overview = load_dashboard_overview(NOW)
    assert (overview.runs_waiting, overview.runs_running) == (2, 2)


def test_events_are_counted_by_when_they_were_received() -> None:
    receive(session(1), [timedelta(minutes=59), timedelta(minutes=61), timedelta(hours=25)])
    overview = load_dashboard_overview(NOW)
    assert (overview.events_last_hour, overview.events_last_day) == (1, 2)


def test_a_runner_is_online_while_it_is_heard_of() -> None:
    runner(1, silent=5)
    runner(2, silent=500)
    runner(3, silent=5, gone_at=NOW)
    runner(4, silent=5, deregistered_at=NOW)
    overview = load_dashboard_overview(NOW)
    assert (overview.runners, overview.runners_online) == (3, 1)


def test_lists_are_short_and_newest_sessions_come_first() -> None:
    for number in range(12):
        session(number, age=timedelta(minutes=number))
    recent = load_dashboard_overview(NOW).recent_sessions
    assert [row.session.session_id for row in recent] == [f"ses_{number:012x}" for number in range(6)]


def test_a_new_install_says_what_to_do_next() -> None:
    html = signed_in("viewer").get("/ui/").content.decode()
    assert "Get started" in html
    assert "signalbox demo" in html


def test_beside_first_steps_a_new_install_adds_only_what_they_do_not_say() -> None:
    html = signed_in("admin").get("/ui/").content.decode()
    assert "First steps" in html
    assert "Get started" not in html
    assert "signalbox demo" in html


def test_the_page_shows_the_counts() -> None:
    session(1, "error")
    ask(1)
    html = signed_in("viewer").get("/ui/").content.decode()
    assert "Get started" not in html
    assert "ses_000000000001" in html
    assert "FileWrite" in html


def test_an_admin_reads_in_one_line_that_agents_can_read_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_user, "cached_shared_user_problem", lambda: "Agents have run as root.")
    body = signed_in("admin").get("/ui/").content.decode()
    folded = body.partition("<details")[2].partition("</details>")[0]
    line, _, rest = folded.partition("</summary>")
    assert "Agents can read Signalbox" in line
    assert "Agents have run as root." in rest
    assert "Agents have run as root." not in signed_in("approver").get("/ui/").content.decode()


def test_a_recent_session_is_shown_by_what_it_is_about() -> None:
    said = session(1)
    words = [{"type": "text", "text": "Mend the flaky\ntest"}]
    event = Event.objects.create(
        session=said, event_type="message", role="user", timestamp="x", content=words
    )
    EventContext.objects.create(event=event, session_id=said.pk, instant_us=0, received_at=NOW)
    Run.objects.create(
        run_id="run_1", session=session(2), type="start_session", prompt="Say hello", created_at=NOW
    )
    session(3)
    assert {recent.session.pk: recent.title for recent in load_dashboard_overview(NOW).recent_sessions} == {
        "ses_000000000001": "Mend the flaky test",
        "ses_000000000002": "Say hello",
        "ses_000000000003": "",
    }


def test_a_recent_session_that_has_been_silent_is_idle_as_in_the_list_of_sessions() -> None:
    silent, heard = session(1, age=timedelta(hours=2)), session(2)
    shown = {
        recent.session.pk: recent.status_or_idle for recent in load_dashboard_overview(NOW).recent_sessions
    }
    assert shown == {silent.pk: "idle", heard.pk: "running"}


def test_text_of_agents_is_escaped() -> None:
    Session.objects.create(
        session_id="ses_<i>", status="<s>", created_at=NOW, project_dir="<script>", agent_name="<b>"
    )
    html = signed_in("viewer").get("/ui/").content.decode()
    assert not any(tag in html for tag in ("<i>", "<s>", "<script>", "<b>"))
    assert "&lt;script&gt;" in html


def test_a_decision_is_listed_by_what_was_asked_for() -> None:
    row = ask(1, status="approved", approved_at=NOW, approved_by="ann")
    PermissionContext.objects.create(
        request=row, subject_key="1" * 64, tool_name="Bash", tool_input={"command": "make deploy"}
    )
    page = " ".join(signed_in("viewer").get("/ui/").content.decode().split())
    assert 'title="Run make deploy"' in page


def test_a_signal_fetches_the_fragment_and_nothing_else() -> None:
    client = signed_in("viewer")
    whole = client.get("/ui/").content.decode()
    part = client.get("/ui/", headers={"HX-Request": "true"})
    restored = client.get("/ui/", headers={"HX-Request": "true", "HX-History-Restore-Request": "true"})
    assert "<html" in whole
    assert "<html" not in part.content.decode()
    assert 'id="now"' in part.content.decode()
    assert "<html" in restored.content.decode()
    assert "HX-Request" in part.headers["Vary"]


def test_more_rows_take_no_more_queries(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    client = Client()
    signed_in("viewer")
    client.force_login(User.objects.get())
    for number in range(30):
        session(number)
        ask(number)
        runner(number, 1)
    with django_assert_max_num_queries(48):
        client.get("/ui/")
