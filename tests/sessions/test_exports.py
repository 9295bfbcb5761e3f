"""A session as a file: everything in it, in order, however large, whatever the agent wrote."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from coordinator.sessions.timeline import walking
from tests.timelines import add_events, called, make_session, said

pytestmark = pytest.mark.django_db


def export(client, session, name):
    return client.get(reverse(f"sessions:{name}", args=[session.pk]))


def test_ndjson_has_every_event_in_timeline_order(viewer, monkeypatch):
    monkeypatch.setattr(walking, "STRETCH", 4)
    session = make_session()
    rows = add_events(session, [said("user", f"message {n}", at=100 - n) for n in range(10)])
    lines = export(viewer, session, "ndjson").getvalue().decode().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [row.pk for row in reversed(rows)]
    assert json.loads(lines[0])["content"] == [{"type": "text", "text": "message 9"}]


def test_markdown_reads_as_the_page_does(viewer):
    session = make_session(project_dir="/srv/app")
    add_events(
        session,
        [
            said("user", "Fix **it**"),
            *called("Bash", {"command": "make"}, {"stdout": "```\nbuilt", "stderr": ""}, error="exit 1"),
        ],
    )
    text = export(viewer, session, "markdown").getvalue().decode()
    assert text.startswith("# Fix it\n")
    assert f"- Session: {session.pk}\n" in text
    assert "- Directory: /srv/app" in text
    assert "Fix **it**" in text
    assert "Bash make (failed, 400 ms)" in text
    assert "````\n```\nbuilt\n````" in text


def test_an_empty_session_exports_too(viewer):
    session = make_session()
    assert export(viewer, session, "ndjson").getvalue() == b""
    assert export(viewer, session, "markdown").getvalue().startswith(b"# Untitled session")


def test_a_file_name_holds_nothing_dangerous(viewer):
    session = make_session('../../e"tc\r\nX: y')
    header = export(viewer, session, "ndjson")["Content-Disposition"]
    assert header == 'attachment; filename="_.._e_tc_X_y.ndjson"'


def test_the_printable_page_is_unfolded(viewer):
    session = make_session()
    add_events(session, called("Bash", {"command": "ls"}, "files"))
    body = export(viewer, session, "print").content.decode()
    assert "data-fold open" in body
