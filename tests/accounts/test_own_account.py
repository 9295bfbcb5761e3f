from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from coordinator.actions.people.accounts import ON_DEVICE, SignInAttempt
from coordinator.models import AuditLog
from tests.people import PASSWORD, person, signed_in

NEW = "eleven-quiet-signals"
pytestmark = pytest.mark.django_db


def change(client: Client, old: str = PASSWORD, new: str = NEW, again: str = NEW):
    form = {"old_password": old, "new_password1": new, "new_password2": again}
    return client.post("/ui/account/password/", form)


def test_a_person_changes_their_password_and_stays_signed_in() -> None:
    client = signed_in("viewer")
    assert change(client).headers["Location"] == "/ui/account/"
    assert "Your password is changed" in client.get("/ui/account/").content.decode()
    assert User.objects.get().check_password(NEW)


def test_the_browser_that_changes_the_password_stays_a_known_one() -> None:
    client = signed_in("viewer")
    change(client)
    mark = client.cookies["signalbox_device"].value
    assert [limit for limit, _ in SignInAttempt("viewer", "192.0.2.1", mark).applicable_limits()] == [
        ON_DEVICE
    ]


def test_other_sessions_end() -> None:
    user, here, there = person("viewer"), Client(), Client()
    here.force_login(user)
    there.force_login(user)
    change(here)
    assert there.get("/ui/").status_code == 302


@pytest.mark.parametrize(
    "wrong", [{"old": "wrong"}, {"again": "other"}, {"new": "12345678", "again": "12345678"}]
)
def test_a_change_that_is_not_right_changes_nothing(wrong: dict[str, str]) -> None:
    answer = change(signed_in("viewer"), **wrong)
    assert answer.status_code == 422
    assert "errorlist" in answer.content.decode()
    assert User.objects.get().check_password(PASSWORD)


def test_a_change_is_audited_without_the_password() -> None:
    change(signed_in("viewer"))
    row = AuditLog.objects.get(event_type="PASSWORD_CHANGED")
    assert (row.actor_id, row.target_id) == ("user:viewer", "viewer")
    assert NEW not in str(vars(row))


@pytest.mark.parametrize(
    ("theme", "scheme"), [("dark", "dark"), ("light", "light"), ("system", "light dark")]
)
def test_the_server_draws_the_chosen_colours_at_once(theme: str, scheme: str) -> None:
    client = signed_in("viewer")
    client.post("/ui/account/theme/", {"theme": theme, "next": "/ui/account/"})
    assert f'<meta name="color-scheme" content="{scheme}">' in client.get("/ui/account/").content.decode()


def test_an_unknown_theme_means_the_systems() -> None:
    client = signed_in("viewer")
    client.cookies["signalbox_theme"] = '"><script>'
    assert 'content="light dark"' in client.get("/ui/account/").content.decode()


def test_the_admin_wears_the_same_colours() -> None:
    client = signed_in("admin")
    client.cookies["signalbox_theme"] = "dark"
    assert '<meta name="color-scheme" content="dark">' in client.get("/admin/").content.decode()
