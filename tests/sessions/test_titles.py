"""What a session is called: by a person, by its agent, or by its first prompt; and where that is kept and shown."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse
from django.utils.html import escape

from coordinator.actions.sessions import titles as naming
from coordinator.actions.sessions.events import record_events
from coordinator.dialects import claude_code
from coordinator.feed.reader import FeedChange
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog, PermissionRequest, Run, Runner, Session, SessionTitle
from coordinator.sessions import titles
from coordinator.sessions.events import NewEvent
from dashboard.sessions.rows import build_session_title_fragments
from tests.approvals.factories import asked
from tests.people import signed_in
from tests.timelines import BEGAN, add_events, called, make_session, said

pytestmark = pytest.mark.django_db
ANNA = Actor("user", "anna")
TOKEN = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def session() -> Session:
    return make_session("ses_a")


def kept(session: Session) -> tuple[str, str] | None:
    return SessionTitle.objects.filter(pk=session.pk).values_list("title", "source").first()


def start_run(session: Session, prompt: str, run_id: str = "run_1") -> None:
    Run.objects.create(run_id=run_id, session=session, type="start_session", prompt=prompt, created_at=BEGAN)


def report_title(session: Session, title: Any) -> None:
    """Have Claude Code's SessionStart tell how it calls the session."""
    body = {"hook_event_name": "SessionStart", "session_id": "c1", "source": "resume", "session_title": title}
    hook = claude_code.AgentHook("SessionStart", "c1", body, "2026-11-20T09:00:00+00:00")
    record_events([*claude_code.DIALECT.build_hook_and_transcript_events(hook, session.pk)], BEGAN)


# --- what is known before anything is kept ----------------------------------------------------------------


def test_the_first_prompt_names_a_session_at_once(session: Session) -> None:
    assert titles.load_session_title(session.pk) == ""
    add_events(session, [said("assistant", "hello"), said("user", "Fix the *build*. Then rest.")])
    assert titles.load_session_title(session.pk) == "Fix the build"


def test_commands_that_say_nothing_give_way_to_what_follows(session: Session) -> None:
    add_events(session, [said("user", "/clear"), said("user", "/model"), said("user", "Mend the docs")])
    assert titles.load_session_title(session.pk) == "Mend the docs"


def test_without_a_persons_words_the_runs_prompt_names_it(session: Session) -> None:
    start_run(session, "## Look at\nthe docs")
    add_events(session, [said("user", "/clear")])
    assert titles.load_session_title(session.pk) == "Look at the docs"


def test_many_sessions_take_as_many_queries_as_one(django_assert_max_num_queries: Any) -> None:
    for number in range(130):
        one = make_session(f"ses_{number:03}")
        if number % 2:
            add_events(one, [said("user", f"Do number {number} of them")])
        else:
            start_run(one, f"Run number {number} of them", f"run_{number}")
    with django_assert_max_num_queries(
        5
    ):  # one for the ids; first words are read a hundred sessions at a time
        found = titles.load_session_titles(Session.objects.values_list("pk", flat=True))
    assert (found["ses_001"], found["ses_128"]) == ("Do number 1 of them", "Run number 128 of them")


@pytest.mark.parametrize(
    "content", [None, 7, [], {}, [None], [{"text": 3}], "plain words of somebody", [{"text": "\ud800"}]]
)
def test_odd_messages_are_no_error(session: Session, content: Any) -> None:
    add_events(session, [{"event_type": "message", "role": "user", "content": content}])
    naming.update_session_titles(BEGAN)
    assert titles.load_session_title(session.pk) in {"", "plain words of somebody", "\\ud800"}


def test_a_message_that_is_too_long_to_read_whole_gives_its_first_words(session: Session) -> None:
    add_events(session, [said("user", 'Read "this" first: \\n ' + "x\n" * 9000)])
    assert titles.load_session_title(session.pk).startswith('Read "this" first: \\n')


# --- what is kept -----------------------------------------------------------------------------------------


def test_sessions_of_before_get_theirs_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "STEP", 2)
    monkeypatch.setattr(naming, "GENTLE_FOR", 0)
    monkeypatch.setattr(naming.feed, "find_newest_change_id", lambda: 0)
    monkeypatch.setattr(naming.feed, "can_replay_changes", lambda _: True)
    for number in range(5):
        add_events(make_session(f"ses_{number}"), [said("user", f"Do number {number} of them")])
    naming.update_session_titles(BEGAN)
    assert not SessionTitle.objects.exists()
    monkeypatch.setattr(naming, "GENTLE_FOR", 60)
    naming.update_session_titles(BEGAN)
    assert SessionTitle.objects.count() == 5
    SessionTitle.objects.all().delete()
    naming.update_session_titles(BEGAN)
    assert not SessionTitle.objects.exists()  # it goes through them once


@pytest.mark.django_db(transaction=True)
def test_a_title_is_kept_as_events_come_and_stays() -> None:
    naming.update_session_titles(BEGAN)
    session = make_session("ses_new")
    start_run(session, "Order of a program")
    naming.update_session_titles(BEGAN)
    assert kept(session) == ("Order of a program", "prompt")
    told = NewEvent(
        event_type="message",
        session_id=session.pk,
        timestamp="2026-11-20T09:00:00Z",
        role="user",
        content=[{"type": "text", "text": "Fix it all, please"}],
    )
    record_events([told], BEGAN)
    naming.update_session_titles(BEGAN)
    assert kept(session) == ("Fix it all, please", "prompt")
    record_events([told], BEGAN)
    naming.update_session_titles(BEGAN)
    assert kept(session) == ("Fix it all, please", "prompt")


@pytest.mark.django_db(transaction=True)
def test_after_a_gap_in_the_feed_all_sessions_are_looked_at() -> None:
    naming.update_session_titles(BEGAN)
    session = make_session("ses_new")
    add_events(session, [said("user", "Said while nobody followed")])
    naming.save_title_job_progress(10**15, None)  # a backup was put back
    naming.update_session_titles(BEGAN)
    assert kept(session) == ("Said while nobody followed", "prompt")


def test_a_program_that_names_its_session_goes_before_the_prompt(session: Session) -> None:
    add_events(session, [said("user", "Fix the build, please")])
    naming.update_session_titles(BEGAN)
    report_title(session, "Broken\n*build*")
    naming.assign_session_titles([session.pk], BEGAN)
    assert kept(session) == ("Broken *build*", "agent")
    naming.assign_session_titles([session.pk], BEGAN)
    assert kept(session) == ("Broken *build*", "agent")


@pytest.mark.parametrize("odd", [None, 7, ["x"], {"a": 1}, "  "])
def test_an_odd_title_of_an_agent_is_no_title(session: Session, odd: Any) -> None:
    add_events(session, [said("user", "Fix the build, please")])
    report_title(session, odd)
    naming.assign_session_titles([session.pk], BEGAN)
    assert kept(session) == ("Fix the build, please", "prompt")


def test_a_persons_title_stands_for_good(session: Session) -> None:
    add_events(session, [said("user", "Fix the build, please")])
    naming.save_person_title(session.pk, "  My   title ", actor=ANNA, now=BEGAN)
    report_title(session, "Another")
    naming.save_titles_from_agents({session.pk: "A third"}, BEGAN)
    naming.update_session_titles(BEGAN)
    naming.assign_session_titles([session.pk], BEGAN)
    assert kept(session) == ("My title", "person")


def test_with_nothing_typed_it_gets_its_own_title_back(session: Session) -> None:
    add_events(session, [said("user", "Fix the build, please")])
    naming.save_person_title(session.pk, "Mine", actor=ANNA, now=BEGAN)
    assert naming.save_person_title(session.pk, " ", actor=ANNA, now=BEGAN) == "Fix the build, please"
    assert kept(session) == ("Fix the build, please", "prompt")
    report_title(session, "The agent's")
    naming.save_person_title(session.pk, "Mine", actor=ANNA, now=BEGAN)
    assert naming.save_person_title(session.pk, "", actor=ANNA, now=BEGAN) == "The agent's"


def test_secrets_stay_masked_in_every_title(session: Session) -> None:
    naming.save_titles_from_agents({session.pk: f"Agent's {TOKEN}"}, BEGAN)
    assert TOKEN not in str(kept(session))
    naming.save_person_title(session.pk, f"Person's {TOKEN}", actor=ANNA, now=BEGAN)
    assert str(kept(session)).startswith("(\"Person's [masked: GitHub token ")
    assert TOKEN not in str(list(AuditLog.objects.values_list("metadata", flat=True)))


def test_a_title_goes_with_its_session_and_none_comes_without(session: Session) -> None:
    naming.save_titles_from_agents({session.pk: "Here", "ses_nowhere": "There"}, BEGAN)
    assert list(SessionTitle.objects.values_list("pk", flat=True)) == [session.pk]
    Session.objects.filter(pk=session.pk).delete()
    assert not SessionTitle.objects.exists()


# --- renaming ---------------------------------------------------------------------------------------------


def rename_url(session: Session) -> str:
    return reverse("sessions:rename", args=[session.pk])


def test_an_approver_renames_and_the_audit_log_says_so(session: Session) -> None:
    add_events(session, [said("user", "Fix the build, please")])
    naming.update_session_titles(BEGAN)
    client = signed_in("approver")
    assert 'value="Fix the build, please"' in client.get(rename_url(session)).content.decode()
    answer = client.post(rename_url(session), {"title": "A better one"})
    assert answer.headers["Location"] == reverse("sessions:detail", args=[session.pk])
    assert kept(session) == ("A better one", "person")
    row = AuditLog.objects.get(event_type="SESSION_RENAMED")
    assert (row.actor_id, row.target_id) == ("user:approver", session.pk)
    assert row.metadata == {"before": "Fix the build, please", "after": "A better one"}
    assert "was named by approver" in client.get(rename_url(session)).content.decode()


def test_a_viewer_may_not_rename(session: Session) -> None:
    assert signed_in("viewer").post(rename_url(session), {"title": "x"}).status_code == 403
    unproved = signed_in("admin", enforce_csrf_checks=True)
    assert unproved.post(rename_url(session), {"title": "x"}).status_code == 403
    assert kept(session) is None


@pytest.mark.parametrize(("title", "status"), [("x" * 201, 422), ("nul\x00", 400)])
def test_what_cannot_be_a_title_is_refused(session: Session, title: str, status: int) -> None:
    assert signed_in("approver").post(rename_url(session), {"title": title}).status_code == status
    assert kept(session) is None


def test_an_unknown_session_cannot_be_renamed() -> None:
    assert signed_in("approver").get("/ui/sessions/ses_x/-/rename/").status_code == 404


# --- where it is shown ------------------------------------------------------------------------------------

EVIL = 'A <b>"bold"</b> & title'


@pytest.fixture
def everywhere(session: Session) -> Session:
    """A session that stands on every page that names one."""
    Session.objects.filter(pk=session.pk).update(status="running", executor_profile="claude-code")
    make_session("ses_parent")
    Session.objects.filter(pk=session.pk).update(parent_session_id="ses_parent")
    add_events(session, [said("user", "needle in the prompt"), *called("Bash", {"command": "ls"})])
    start_run(session, "Another prompt than the title")
    Run.objects.update(status="running", runner_id="lnch_1", type="resume_session")
    Runner.objects.create(
        runner_id="lnch_1", hostname="h", project_dir="/", executor_profile="p", registered_at=BEGAN,
        last_heartbeat=BEGAN,
    )  # fmt: skip
    asked(session_id=session.pk)
    naming.save_person_title(session.pk, EVIL, actor=ANNA, now=BEGAN)
    return session


@pytest.mark.parametrize(
    "path",
    [
        "/ui/", "/ui/sessions/?q=bold", "/ui/sessions/ses_a/", "/ui/sessions/ses_a/-/print/",
        "/ui/sessions/ses_a/-/header/", "/ui/sessions/ses_parent/", "/ui/sessions/ses_parent/-/children/",
        "/ui/sessions/ses_a/-/delete/", "/ui/sessions/ses_a/-/resume/", "/ui/runs/", "/ui/runners/",
        "/ui/search/?session=ses_a", "/ui/approvals/", "/ui/approvals/req-1/", "/ui/connections/",
    ],
)  # fmt: skip
def test_every_page_that_names_a_session_says_its_title(everywhere: Session, path: str) -> None:
    path = path.replace("req-1", PermissionRequest.objects.get().request_id)
    answer = signed_in("admin").get(path)
    assert answer.status_code == 200
    body = answer.content.decode()
    assert f'<span data-session-title="ses_a">{escape(EVIL)}</span>' in body
    assert "<b>" not in body.replace("<b>b</b>", "")


def test_the_tab_is_named_for_the_session_and_its_id_can_be_copied(session: Session) -> None:
    client = signed_in("viewer")
    url = reverse("sessions:detail", args=[session.pk])
    assert "<title>Untitled session · Signalbox</title>" in client.get(url).content.decode()
    add_events(session, [said("user", "Fix the build, please")])
    body = client.get(url).content.decode()
    assert "<title>Fix the build, please · Signalbox</title>" in body
    assert 'data-copy="ses_a"' in body
    assert ">reviewer</a>" in body


def test_the_stream_brings_a_new_title_to_every_place_that_names_the_session(session: Session) -> None:
    naming.save_person_title(session.pk, EVIL, actor=ANNA, now=BEGAN)
    (fragment,) = build_session_title_fragments(
        FeedChange(1, 0, "session_titles", session.pk, None, "update")
    )
    assert fragment.target == '[data-session-title="ses_a"]'
    assert fragment.html == f'<span data-session-title="ses_a">{escape(EVIL)}</span>'
    assert "session_titles" in signed_in("viewer").get("/ui/").content.decode()


def test_a_session_is_found_by_its_title(session: Session) -> None:
    make_session("ses_b")
    naming.save_person_title(session.pk, "Cents and rounding", actor=ANNA, now=BEGAN)
    rows = signed_in("viewer").get("/ui/sessions/?q=rounding").context["rows"]
    assert [row.session.pk for row in rows] == [session.pk]
