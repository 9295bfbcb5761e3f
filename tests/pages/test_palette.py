"""The command palette as a page and as the results of its dialog."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from django.test import Client

from coordinator.models import Agent, Session, SessionTitle
from tests.people import person, signed_in

pytestmark = pytest.mark.django_db
DIALOG = {"HX-Request": "true"}


def links(client: Client, query: str) -> dict[str, str]:
    """Return the results' addresses by their labels."""
    html = client.get("/ui/go/", {"q": query}, headers=DIALOG).content.decode()
    rows = re.findall(
        r'<a\s+class="palette-line"\s+href="([^"]+)".*?<span class="clip">(.*?)</span>', html, re.DOTALL
    )
    return {label: url for url, label in rows}


def add_session(session_id: str, title: str) -> None:
    Session.objects.create(session_id=session_id, status="running", created_at=datetime.now(UTC))
    SessionTitle.objects.create(session_id=session_id, title=title, source="person", set_at=datetime.now(UTC))


def test_without_a_query_it_lists_the_pages_of_the_rail() -> None:
    offered = links(signed_in("viewer"), "")
    assert offered["Approvals"] == "/ui/approvals/"
    assert "Search" in offered
    assert "People" not in offered


def test_it_finds_pages_by_a_few_letters_and_puts_those_that_begin_with_them_first() -> None:
    assert next(iter(links(signed_in("viewer"), "se"))) == "Sessions"


def test_it_offers_only_what_the_person_may_do() -> None:
    assert "Invite a person" in links(signed_in("admin"), "invite")
    assert "Invite a person" not in links(signed_in("approver"), "invite")


def test_it_finds_sessions_by_their_title_and_agents_by_their_name() -> None:
    add_session("ses_of_migrations", "Squash the migrations")
    Agent.objects.create(id="agent.migrator", name="Migrator", default_engine_id="x")
    offered = links(signed_in("viewer"), "migrat")
    assert offered["Squash the migrations"] == "/ui/sessions/ses_of_migrations/"
    assert offered["Migrator"] == "/ui/agents/of/agent.migrator/"


def test_only_administrators_find_people() -> None:
    grace = person("viewer", "grace")
    assert links(signed_in("admin"), "grac")["grace"] == f"/ui/people/{grace.pk}/"
    assert "grace" not in links(signed_in("approver"), "grac")


def test_it_leads_on_to_the_searches_with_the_same_words() -> None:
    offered = links(signed_in("viewer"), "a b")
    assert offered["All sessions with “a b”"] == "/ui/sessions/?q=a+b"
    assert offered["Files whose path has “a b”"] == "/ui/files/?path=a+b"


def test_what_people_type_is_escaped() -> None:
    html = signed_in("viewer").get("/ui/go/", {"q": "<b>&"}).content.decode()
    assert "<b>" not in html.partition("<main")[2]


def test_the_page_has_links_and_the_dialog_has_options() -> None:
    client = signed_in("viewer")
    page, dialog = client.get("/ui/go/"), client.get("/ui/go/", headers=DIALOG)
    assert 'role="option"' not in page.content.decode()
    assert "<html" in page.content.decode()
    assert 'role="option"' in dialog.content.decode()
    assert "<html" not in dialog.content.decode()


def test_a_long_query_and_odd_characters_are_no_error() -> None:
    client = signed_in("admin")
    for query in ("x " * 300, "%_\\", "9" * 400, "ses_😀"):
        assert client.get("/ui/go/", {"q": query}).status_code == 200
