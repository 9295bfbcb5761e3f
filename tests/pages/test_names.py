"""Names and titles that agents, servers and programs choose turn nothing round on a page, and hide nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone

from coordinator.lib.invisible import reveal_invisible_characters
from coordinator.models import Session, SessionTitle
from coordinator.sessions import titles
from tests.approvals.factories import asked
from tests.people import signed_in

EVIL = "good\u202egnp.exe\u200b"
SHOWN = "good[U+202E]gnp.exe[U+200B]"
NAMES = r"agent\.name|server\.name|tool\.name|agent_id|agent_name|tool_name|server_id|plugin_id|hostname"
NAME = rf"\{{\{{ (?:[a-z_]+\.)*(?:{NAMES}) \}}\}}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (EVIL, SHOWN),
        ("a\x07b\ud800", "a[U+0007]b[U+D800]"),
        ("\u2066x\u2069", "[U+2066]x[U+2069]"),
        ("déjà vu\u00a0!\n\tok ❤\ufe0f 👩\u200d💻", "déjà vu\u00a0!\n\tok ❤\ufe0f 👩\u200d💻"),
        ("e\u200dvil", "e[U+200D]vil"),
    ],
)
def test_what_cannot_be_seen_stands_as_its_code(text: str, shown: str) -> None:
    assert reveal_invisible_characters(text) == shown


@pytest.mark.django_db
def test_headings_and_titles_hide_nothing() -> None:
    now = timezone.now()
    row = asked(now=now, agent_id=EVIL, session_id="ses_evil")
    row.plugin_id = row.permission_type = EVIL
    row.save()
    session = Session.objects.create(session_id="ses_evil", status="running", created_at=now, agent_name=EVIL)
    SessionTitle.objects.create(session=session, title=EVIL, set_at=now, set_by="user:a")
    browser = signed_in("admin")
    pages = [
        f"/ui/approvals/{row.request_id}/",
        "/ui/approvals/",
        "/ui/approvals/history/",
        "/ui/sessions/ses_evil/",
        "/ui/sessions/",
        "/ui/",
    ]
    for path in pages:
        html = browser.get(path).content.decode()
        head = re.findall(r"<title>.*?</title>|<h[1-3].*?</h[1-3]>", html, re.DOTALL)
        assert head
        assert not any("\u202e" in part or "\u200b" in part for part in head), path
    assert SHOWN in browser.get(pages[0]).content.decode()
    assert titles.load_session_title("ses_evil") == SHOWN


def test_templates_show_names_through_one_filter() -> None:
    """In an attribute that a script or a form reads, a name stands as it is."""
    raw = {
        f"{path.relative_to(settings.BASE_DIR)}: {match[0]}"
        for path in Path(settings.BASE_DIR, "templates").rglob("*.html")
        if "admin" not in path.parts
        for match in re.finditer(rf"(?<!=\"){NAME}", path.read_text())
    }
    assert raw == set()
