from __future__ import annotations

import re

import pytest
from django.test import RequestFactory

from coordinator.feed.reader import FeedChange
from coordinator.live.fragments import FragmentCache
from coordinator.models import PermissionRequest
from dashboard.frame.context import rail
from dashboard.frame.rail import ENTRIES, GROUPS, BadgeNumber, RailBadge, RailEntry, RailGroup
from tests.people import person, signed_in

pytestmark = pytest.mark.django_db


def keys_for(role: str | None, path: str = "/ui/") -> list[str]:
    request = RequestFactory().get(path)
    request.user = person(role)
    return [item.key for item in rail(request)["rail"]]


def test_admins_see_the_admin_and_viewers_do_not() -> None:
    assert "admin" in keys_for("admin")
    assert "admin" not in keys_for("viewer")


def test_somebody_without_a_role_sees_an_empty_rail() -> None:
    assert keys_for(None) == []


def test_an_entry_without_a_page_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = RailGroup("X", (RailEntry("x", "X", "x:nowhere", "runs"),))
    monkeypatch.setattr("dashboard.frame.context.GROUPS", (*GROUPS, nowhere))
    assert "x" not in keys_for("admin")


def test_the_entry_of_the_page_is_lit() -> None:
    html = signed_in("viewer").get("/ui/").content.decode()
    assert html.count('aria-current="page"') == 1


def test_a_page_below_an_entry_lights_it_but_not_the_overview() -> None:
    request = RequestFactory().get("/admin/auth/user/")
    request.user = person("admin")
    assert [item.key for item in rail(request)["rail"] if item.here] == ["admin"]


def test_of_entries_one_below_the_other_only_the_lower_is_lit() -> None:
    request = RequestFactory().get("/ui/approvals/notifications/escalation/")
    request.user = person("admin")
    assert [item.key for item in rail(request)["rail"] if item.here] == ["notifications"]


def test_every_entry_has_a_letter_of_its_own() -> None:
    letters = [entry.letter for entry in ENTRIES]
    assert sorted(set(letters)) == sorted(letters)
    assert all(len(letter) == 1 and letter != "g" for letter in letters)


def test_a_badge_answers_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    badge = RailBadge(lambda _person: BadgeNumber(7, own=False), lambda: 7, "permission_requests", "waiting")
    monkeypatch.setattr(
        "dashboard.frame.rail.ENTRIES", (RailEntry("x", "X", "overview", "runs", badge=badge),)
    )
    answer = signed_in("viewer").get("/ui/rail/x/badge/")
    assert '<span class="badge">7' in answer.content.decode()


def test_a_badge_that_counts_nothing_stays_to_be_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    badge = RailBadge(lambda _person: BadgeNumber(0, own=False), lambda: 0, "permission_requests", "waiting")
    monkeypatch.setattr(
        "dashboard.frame.rail.ENTRIES", (RailEntry("x", "X", "overview", "runs", badge=badge),)
    )
    html = signed_in("viewer").get("/ui/rail/x/badge/").content.decode()
    assert 'id="rail-badge-x"' in html
    assert 'class="badge"' not in html


def test_a_badge_that_does_not_exist_is_not_found() -> None:
    assert signed_in("viewer").get("/ui/rail/overview/badge/").status_code == 404


def test_the_approvals_badge_counts_what_waits() -> None:
    entry = next(entry for entry in ENTRIES if entry.key == "approvals")
    assert entry.badge is not None
    before = entry.badge.number(person("viewer")).value
    for status in ("pending", "approved"):
        PermissionRequest.objects.create(
            request_id=status,
            created_at="2026-01-01T00:00:00Z",
            plugin_id="p",
            permission_type="FileRead",
            justification="x",
            status=status,
        )
    assert entry.badge.number(person("approver")) == BadgeNumber(before + 1, own=False)
    assert entry.badge.shared() == before + 1


def test_the_stream_brings_the_badge_once_however_many_changes_and_pages(
    django_assert_num_queries,
) -> None:
    changes = [FeedChange(n, 0, "permission_requests", str(n), "p", "insert") for n in (3, 4, 5)]
    fragments = FragmentCache()
    # Whether somebody waits for a second approval, or has snoozed something; whether rows say who decides; how many
    # wait; and of each change, which session's it is.
    with django_assert_num_queries(4 + 3):
        made = fragments.fragments_by_change(changes)
        again = fragments.fragments_by_change(changes[:2])  # another page's channel, a moment later
    assert [*made] == [5]
    [fragment] = made[5]
    assert (fragment.target, fragment.swap) == ("#rail-badge-approvals", "outerHTML")
    assert "data-badge=" in fragment.html
    assert again == {4: [fragment]}


def test_the_badge_of_a_later_change_is_counted_anew(django_assert_num_queries) -> None:
    fragments = FragmentCache()
    with django_assert_num_queries(2 * 5):
        for number in (1, 2):
            fragments.fragments_by_change([FeedChange(number, 0, "permission_requests", "1", "p", "update")])


def test_pages_do_not_ask_for_the_badge_on_every_change() -> None:
    html = signed_in("viewer").get("/ui/").content.decode()
    badge = html[html.index('id="rail-badge-approvals"') :].partition(">")[0]
    triggers = re.search(r'hx-trigger="([^"]*)"', badge)[1]
    assert " ".join(triggers.split()) == "live:reset from:body, live:deciders from:body, arranged from:body"
