"""Whatever a foreign program stored in whatever column: every page, list and door answers, and every job goes on."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.contrib import admin
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from coordinator import models
from coordinator.actions import search
from coordinator.actions.chat import chat_search
from coordinator.actions.people import keys
from coordinator.actions.sessions import events
from coordinator.chat import search as chat_finding
from coordinator.feed import reader as feed
from coordinator.identity.actors import system_actor
from coordinator.identity.scopes import SCOPES
from coordinator.live import fragments, recorded_stream
from coordinator.operations.backups import making
from coordinator.operations.doctor import everything as doctor
from coordinator.operations.jobs import JOBS
from coordinator.search import events as finding
from dashboard.timeline import updates as news
from tests.admin.pages import url
from tests.foreign.answers import Answers
from tests.foreign.rows import AGENT, LAST, TOLD, Foreign, odd_rows, sound_rows, wide_rows
from tests.guards.table import API, PAGES
from tests.guards.test_every_url import every_route
from tests.pages.places import plain_paths
from tests.people import signed_in
from tests.standing import Standing
from tests.unbound import accept_unbound_keys

pytestmark = pytest.mark.django_db

EACH = 37  # of so many rows one is asked for at each address; the row differs from address to address
# Where an address has its argument from.
IDS: dict[str, Callable[[], Iterable[Any]]] = {
    "session_id": lambda: models.Session.objects.values_list("pk", flat=True),
    "agent_id": lambda: models.Agent.objects.values_list("pk", flat=True),
    "request_id": lambda: models.PermissionRequest.objects.values_list("request_id", flat=True),
    "plugin_id": lambda: models.PluginSetting.objects.values_list("pk", flat=True),
    "entry_id": lambda: models.AuditLog.objects.values_list("pk", flat=True),
    "grant_id": lambda: models.Grant.objects.values_list("pk", flat=True),
    "attachment_id": lambda: models.ChatAttachment.objects.values_list("pk", flat=True),
    "run_id": lambda: models.Run.objects.values_list("pk", flat=True),
    "name": lambda: models.McpServer.objects.values_list("pk", flat=True),
}


@pytest.fixture(scope="module", autouse=True)
def odd_rows_everywhere(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A database that another program filled, and that housekeeping has come to know."""
    with django_db_blocker.unblock():
        standing = Standing()
        try:
            fill()
            yield
        finally:
            standing.restore()


def fill() -> None:
    with Foreign() as other:
        sound = [other.write(odd.table, odd.row) for odd in sound_rows()]
        taken = [other.write(odd.table, odd.row) for odd in (*odd_rows(), *wide_rows())]
        last = [other.write(odd.table, odd.row) for odd in sound_rows(last=True)]
    assert all(sound + last), sound
    assert sum(taken) > len(taken) // 2
    events.add_all_missing_event_contexts(timezone.now())
    search.index_new_events()
    chat_search.index_unindexed_chat_messages()


@pytest.fixture(autouse=True)
def rolled_back(db: None) -> Iterator[None]:
    """Have a test's transaction rolled back at once: before that, Django would look for loose foreign keys."""
    yield
    transaction.set_rollback(True)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What an admin's browser is answered."""
    monkeypatch.setattr(
        logging.root.manager, "disable", logging.CRITICAL
    )  # a line for each that is not found
    return Answers(signed_in("admin"))


def some(argument: str, turn: int) -> list[Any]:
    """Return some of the rows that an address may be about; none can name a row without a key."""
    return [one for one in IDS[argument]() if one not in (None, "")][turn % EACH :: EACH]


def test_every_list_answers_page_by_page(answers: Answers) -> None:
    places = [place for place in plain_paths() if "/ui/sign-" not in place and place != "/ui/setup/"]
    assert sum(answers.pages(place) for place in [*places, "/ui/search/?q=lone"]) > len(places)
    answers.check()


def test_every_page_of_a_row_answers(answers: Answers) -> None:
    for turn, (name, route) in enumerate(every_route()):
        arguments = re.findall(r"<(?!slug)\w+:(\w+)>", route)  # a slug names what the program brings
        if "GET" in PAGES.get(name, ("", ()))[1] and len(arguments) == 1 and arguments[0] in IDS:
            for one in some(arguments[0], turn):
                answers.get(reverse(name, args=[one]))
    answers.check()


def test_every_event_is_shown_and_every_thread_is_handed_out(answers: Answers) -> None:
    assert answers.pages(f"/ui/sessions/{TOLD}/?from=start")
    for event in models.Event.objects.filter(session_id=TOLD).values_list("pk", flat=True)[::EACH]:
        answers.get(reverse("sessions:event", args=[TOLD, event]))
        answers.get(reverse("sessions:value", args=[TOLD, event, "tool_input"]))
    for form in ("md", "ndjson"):
        answers.get(reverse("chat:export", args=[AGENT, form]))
        _, body = answers.get(reverse("chat:export", args=[AGENT, form]))
        assert LAST in body.decode()
    for name in ("ndjson", "markdown", "print"):
        _, body = answers.get(reverse(f"sessions:{name}", args=[TOLD]))
        assert body
    answers.check()


@pytest.mark.parametrize("model", admin.site._registry, ids=lambda model: model._meta.label)
def test_the_admin_shows_every_row(answers: Answers, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin.site, "get_app_list", lambda *_, **__: [])  # a third of each page's time
    answers.pages(url(model, "changelist"))
    if model is not models.Change:
        for pk in list(model.objects.values_list("pk", flat=True))[::EACH]:
            if pk != "":  # Django's admin has no page for it
                answers.get(url(model, "change", pk))
    answers.check()


def test_every_door_answers() -> None:
    accept_unbound_keys()
    now = timezone.now()
    raw = keys.issue_api_key(name="all", scopes=[*SCOPES], actor=system_actor("tests"), now=now)[1]
    answers = Answers(Client(headers={"Authorization": f"Bearer {raw}"}))
    for turn, door in enumerate(API):
        method, _, place = door.partition(" ")
        arguments = re.findall(r"<(?:path:)?(\w+)>", place)
        if method != "GET" or place.endswith("/wait"):
            continue
        if not arguments:
            answers.whole_list(place)
        elif arguments[0] in IDS:
            for one in some(arguments[0], turn):
                answers.get(re.sub("<.*?>", quote(str(one), safe=""), place))
    answers.whole_list(f"/sessions/{TOLD}/events")
    answers.check()


def test_what_was_stored_last_is_found() -> None:
    assert [hit.event.tool_name for hit in finding.search_events(finding.SearchQuery(LAST)).hits] == ["Bash"]
    assert search.count_unindexed_events() == 0
    assert [hit.message.user_id for hit in chat_finding.find_chat_messages(LAST)] == ["default"]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_every_job_is_done(
    job: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting in filter(re.compile("KEEP_[A-Z_]+_DAYS").fullmatch, dir(settings)):
        monkeypatch.setattr(settings, setting, 1)
    job.work(timezone.now())
    job.work(timezone.now() + timedelta(days=2))
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_the_doctor_looks_at_everything() -> None:
    checks = list(doctor.iterate_all_doctor_checks("http://127.0.0.1:1", timezone.now()))
    assert {"database", "integrity", "triggers", "people", "keys"} <= {check.name for check in checks}


def test_a_backup_holds_every_row(tmp_path: Path) -> None:
    before = models.Event.objects.count()
    manifest = making.write_backup_folder(tmp_path / "backup", timezone.now(), say=str)
    assert manifest.total_size > before
    if connection.vendor == "sqlite":
        assert manifest.tables["events"] == before


def test_every_change_is_told_live(caplog: pytest.LogCaptureFixture) -> None:
    changes = feed.list_changes_after(0, upto=feed.find_newest_change_id(), limit=10_000)
    assert len(changes) > 100
    assert recorded_stream.load_session_init_frames(None, 0)
    shown = recorded_stream.load_frames_of_changes(
        [change for change in changes if change.topic in recorded_stream.TOPICS]
    )
    assert len(shown) > 100
    drawn = fragments.FragmentCache().fragments_by_change(changes[::EACH])
    assert drawn
    for view in fragments.VIEWS.values():
        assert view.summary(TOLD)
        view.draw_changes(
            TOLD, [change for change in changes if view.is_change_about_view_key(TOLD, change)][::EACH]
        )
    assert news.VIEW.draw_changes(
        TOLD, [change for change in changes if news.VIEW.is_change_about_view_key(TOLD, change)][::EACH]
    )
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
