from __future__ import annotations

import csv
import io
import json
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import get_resolver
from django.utils import timezone

from coordinator.actions.audit import audit
from coordinator.identity.actors import Actor
from coordinator.lib import trace
from coordinator.models import AuditLog
from dashboard.audit.views import list_audit_field_changes

pytestmark = pytest.mark.django_db
URL = "/ui/audit/"
ALICE, ROBOT = Actor("user", "alice"), Actor("key", "robot")


@pytest.fixture
def viewer() -> Client:
    user = User.objects.create_user("vera", password="secret-words-7")
    user.groups.add(Group.objects.get(name="viewer"))
    browser = Client()
    browser.force_login(user)
    return browser


@pytest.fixture
def rows() -> list[AuditLog]:
    now = timezone.now()
    trace.begin_trace("trace-number-one")
    first = audit.record_audit_entry(
        "GRANT_CREATED", actor=ALICE, target="srv.a", permission="allow", result="success", now=now
    )
    second = audit.record_audit_entry(
        "GRANT_CHANGED",
        actor=ALICE,
        target="srv.a",
        result="success",
        reason="too wide <b>",
        metadata={"before": {"permission": "allow"}, "after": {"permission": "deny"}, "note": "x"},
        now=now - timedelta(days=2),
    )
    trace.end_trace()
    third = audit.record_audit_entry("RUN_STOPPED", actor=ROBOT, target="run_1", result="denied", now=now)
    return [first, second, third]


def shown(browser: Client, query: str = "") -> list[int]:
    html = browser.get(f"{URL}{query}").content.decode()
    return [int(found) for found in re.findall(r'id="audit-(\d+)"', html)]


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("", [2, 1, 0]),
        ("?event=GRANT_CHANGED", [1]),
        ("?actor=key:robot", [2]),
        ("?target=srv.a", [1, 0]),
        ("?permission=allow", [0]),
        ("?result=denied", [2]),
        ("?trace=trace-number-one", [1, 0]),
        ("?q=too+wide", [1]),
        ("?q=deny", [1]),
        (f"?since={timezone.now():%Y-%m-%d}", [2, 0]),
        (f"?until={timezone.now() - timedelta(days=1):%Y-%m-%d}", [1]),
        ("?actor=nobody", []),
    ],
)
def test_filters(viewer: Client, rows, query: str, kept: list[int]) -> None:
    assert shown(viewer, query) == [rows[index].pk for index in kept]


def test_a_row_shows_before_after_and_what_else_happened_in_its_request(viewer: Client, rows) -> None:
    html = viewer.get(f"{URL}{rows[1].pk}/").content.decode()
    assert "too wide &lt;b&gt;" in html
    assert re.search(r"<code>allow</code>.*<code>deny</code>", html, re.S)
    assert f'id="audit-{rows[0].pk}"' in html
    assert f'id="audit-{rows[2].pk}"' not in html


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (None, []),
        ("text", []),
        ({"other": 1}, []),
        ({"before": {"a": 1}, "after": {"a": 2}}, [("a", "1", "2")]),
        ({"after": {"a": [1]}}, [("a", "", "[1]")]),
        ({"before": ["x"], "after": ["x", "y"]}, [("value", '["x"]', '["x", "y"]')]),
        ({"before": None, "after": None}, []),
    ],
)
def test_differences_of_any_metadata(metadata: object, expected: list[tuple[str, str, str]]) -> None:
    assert [(one.name, one.before, one.after) for one in list_audit_field_changes(metadata)] == expected


def test_an_unknown_row_is_404(viewer: Client) -> None:
    assert viewer.get(f"{URL}999999/").status_code == 404


def test_exports_hold_what_the_filters_show(viewer: Client, rows) -> None:
    table = list(
        csv.DictReader(io.StringIO(viewer.get(f"{URL}export.csv?actor=user:alice").getvalue().decode()))
    )
    assert [row["event_type"] for row in table] == ["GRANT_CHANGED", "GRANT_CREATED"]
    lines = viewer.get(f"{URL}export.ndjson").getvalue().decode().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [row.pk for row in reversed(rows)]
    assert json.loads(lines[1])["metadata"]["after"] == {"permission": "deny"}


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_nothing_of_the_log_can_be_changed_from_its_pages(viewer: Client, rows, method: str) -> None:
    for path in (URL, f"{URL}{rows[0].pk}/", f"{URL}export.csv", f"{URL}export.ndjson"):
        assert getattr(viewer, method)(path).status_code == 405
    assert AuditLog.objects.count() == 3


def test_the_log_is_not_for_strangers(rows) -> None:
    stranger = Client()
    for path in (URL, f"{URL}{rows[0].pk}/", f"{URL}export.csv", f"{URL}export.ndjson"):
        assert "/ui/sign-in/" in stranger.get(path)["Location"]
    assert get_resolver()


def test_foreign_rows_with_odd_times_and_metadata_are_shown_as_they_stand(viewer: Client) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit_logs (timestamp, event_type, result, metadata) VALUES ('whenever', 'ODD', 'ok?', '{')"
        )
    row = AuditLog.objects.get(event_type="ODD")
    assert "whenever" in viewer.get(URL).content.decode()
    assert "ok?" in viewer.get(f"{URL}{row.pk}/").content.decode()
    assert "whenever" in viewer.get(f"{URL}export.csv").getvalue().decode()
