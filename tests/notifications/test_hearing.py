"""Each address hears of what its owner chose."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from coordinator.actions import notifications
from coordinator.errors import NotFound, UnprocessableRequest
from coordinator.models import NotificationTarget
from tests.approvals.factories import NOW, asked, person, stored
from tests.notifications.telling import Told, deliver, listening, told  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("about", "patterns", "tells"),
    [
        ("everything", "", True),
        ("marked", "", False),
        ("types", "NetworkAccess, process*", True),
        ("types", "NetworkAccess", False),
        ("tools", "Edit, Bash", True),
        ("tools", "mcp__github__*", False),
        ("of another program", "", True),
    ],
)
def test_an_address_hears_of_what_was_chosen(
    alice: User,
    told: Told,  # noqa: F811
    about: str,
    patterns: str,
    tells: bool,
) -> None:
    listening(alice, about=about, patterns=patterns)
    asked()
    deliver(NOW)
    assert told.people() == (["alice"] if tells else [])


def test_an_address_for_marked_calls_hears_of_a_deletion(alice: User, told: Told) -> None:  # noqa: F811
    listening(alice, about="marked")
    asked(tool_input={"command": "rm -rf build"})
    deliver(NOW)
    assert told.people() == ["alice"]


def test_a_request_without_a_tool_is_for_no_list_of_tools(alice: User) -> None:
    target = listening(alice, about="tools", patterns="*")
    row = stored()
    notifications.announce_waiting_request(row, now=NOW)
    assert not target.notifications.exists()


def test_only_its_owner_chooses_and_lists_are_not_empty(alice: User) -> None:
    target = listening(alice)
    with pytest.raises(NotFound):
        notifications.set_notification_filter(target.pk, user=person("bob"), about="marked")
    for wrong in ({"about": "types"}, {"about": "x"}, {"about": "tools", "patterns": " , "}):
        with pytest.raises(UnprocessableRequest):
            notifications.set_notification_filter(target.pk, user=alice, **wrong)


def test_the_choice_is_made_on_the_page(signed_in) -> None:
    browser = signed_in("carol")
    target = listening(User.objects.get(username="carol"))
    url = f"/ui/approvals/notifications/{target.pk}/about/"
    browser.post(url, {"about": "tools", "patterns": "Bash,\nmcp__github__*"})
    target = NotificationTarget.objects.get()
    assert (target.about, target.patterns) == ("tools", "Bash, mcp__github__*")
    assert "Bash, mcp__github__*" in browser.get("/ui/approvals/notifications/").content.decode()
