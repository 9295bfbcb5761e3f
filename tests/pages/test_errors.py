from __future__ import annotations

import logging

import pytest
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, OperationalError
from django.http import Http404
from django.test import Client, RequestFactory
from django.urls import path

from coordinator import urls
from dashboard.frame import error_views as errors
from tests.people import signed_in


def broken(request: object) -> None:
    raise DatabaseError("the database is gone")


def locked(request: object) -> None:
    raise OperationalError("database is locked")


def denied(request: object) -> None:
    raise PermissionDenied("Only on weekdays.")


def missing(request: object) -> None:
    raise Http404("No session has this id.")


urlpatterns = [
    *urls.urlpatterns,
    path("ui/broken/", broken),
    path("broken", broken),
    path("ui/locked/", locked),
    path("locked", locked),
    path("ui/denied/", denied),
    path("denied", denied),
    path("ui/missing/", missing),
]
handler400, handler403, handler404, handler500 = (
    urls.handler400,
    urls.handler403,
    urls.handler404,
    urls.handler500,
)
pytestmark = pytest.mark.urls(__name__)


@pytest.fixture
def stranger() -> Client:
    return Client(raise_request_exception=False)


def test_the_page_of_a_500_needs_no_database(stranger: Client) -> None:
    # no django_db mark: pytest-django fails any query
    answer = stranger.get("/ui/broken/", **{"signalbox.trace_id": "trace-of-a-test"})
    assert answer.status_code == 500
    assert "Something went wrong" in answer.content.decode()
    assert "trace-of-a-test" in answer.content.decode()


def test_a_500_tells_a_browser_nothing_of_the_error(stranger: Client) -> None:
    assert "the database is gone" not in stranger.get("/ui/broken/").content.decode()


def test_a_busy_database_is_told_from_a_broken_program(stranger: Client) -> None:
    answer = stranger.get("/ui/locked/")
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert "The database is busy" in answer.content.decode()
    machine = stranger.get("/locked")
    assert (machine.json()["detail"], machine["Retry-After"]) == (errors.BUSY, "2")


def test_a_busy_database_has_words_for_a_part_of_a_page(stranger: Client) -> None:
    answer = stranger.get("/ui/locked/", headers={"HX-Request": "true"})
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith("The database is busy.")


@pytest.mark.django_db
def test_what_is_not_there_is_said_without_djangos_words() -> None:
    html = signed_in("viewer").get("/ui/sessions/ses_nowhere/").content.decode()
    assert "matches the given query" not in html
    assert "It may have been deleted" in html


def test_a_500_that_cannot_be_drawn_is_still_answered(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(errors, "render_error_without_request", broken)
    with caplog.at_level(logging.ERROR):
        answer = errors.server_error(RequestFactory().get("/ui/"))
    assert answer.status_code == 500
    assert b"Something went wrong" in answer.content
    assert "could not be rendered" in caplog.text


@pytest.mark.django_db
def test_machines_read_json(stranger: Client) -> None:
    assert stranger.get("/nowhere").json() == {"detail": "Not Found"}
    assert stranger.get("/broken").json() == {"detail": "Internal Server Error"}
    assert stranger.get("/denied").json() == {"detail": "Forbidden"}


@pytest.mark.django_db
def test_a_browser_at_a_machines_path_reads_a_page(stranger: Client) -> None:
    answer = stranger.get("/nowhere", headers={"Accept": "text/html,application/xhtml+xml"})
    assert answer.status_code == 404
    assert "<h2>Not found</h2>" in answer.content.decode()


@pytest.mark.django_db
def test_a_404_keeps_the_rail_and_says_what_is_missing() -> None:
    html = signed_in("viewer").get("/ui/missing/").content.decode()
    assert "No session has this id." in html
    assert 'aria-label="Main"' in html


@pytest.mark.django_db
def test_a_stranger_gets_a_404_without_the_rail(stranger: Client) -> None:
    html = stranger.get("/ui/nowhere/").content.decode()
    assert "Not found" in html
    assert 'aria-label="Main"' not in html


@pytest.mark.django_db
def test_a_403_says_why() -> None:
    answer = signed_in("viewer").get("/ui/denied/")
    assert answer.status_code == 403
    assert "Only on weekdays." in answer.content.decode()


@pytest.mark.django_db
def test_a_form_without_its_token_is_refused_with_a_page() -> None:
    client = Client(enforce_csrf_checks=True)
    answer = client.post("/ui/sign-in/", {"username": "a", "password": "b"})
    assert answer.status_code == 403
    assert "This form is out of date" in answer.content.decode()


@pytest.mark.django_db
def test_a_foreign_host_is_refused_with_a_page(stranger: Client) -> None:
    answer = stranger.get("/ui/", headers={"Host": "evil.example"})
    assert answer.status_code == 400
    assert "SIGNALBOX_ALLOWED_HOSTS" in answer.content.decode()
