from __future__ import annotations

import pytest
from django.test import Client

from coordinator.models import AuditLog
from tests.people import PASSWORD, person, signed_in

pytestmark = pytest.mark.django_db


def try_it(client: Client, name: str = "viewer", password: str = PASSWORD, **more: str):
    return client.post("/ui/sign-in/", {"username": name, "password": password} | more)


def test_a_person_signs_in_and_reaches_the_overview() -> None:
    person("viewer")
    client = Client()
    assert try_it(client).headers["Location"] == "/ui/"
    assert client.get("/ui/").status_code == 200


def test_a_person_reaches_the_page_they_wanted() -> None:
    person("viewer")
    assert try_it(Client(), next="/ui/account/?a=1").headers["Location"] == "/ui/account/?a=1"


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "http:evil.example",
    ],
)
def test_nobody_is_sent_elsewhere(elsewhere: str) -> None:
    person("viewer")
    assert try_it(Client(), next=elsewhere).headers["Location"] == "/ui/"
    assert signed_in("approver").get("/ui/sign-in/", {"next": elsewhere}).headers["Location"] == "/ui/"
    theme = Client().post("/ui/account/theme/", {"theme": "dark", "next": elsewhere})
    assert theme.headers["Location"] == "/ui/"


@pytest.mark.parametrize(("name", "password"), [("viewer", "wrong"), ("nobody", PASSWORD)])
def test_what_is_wrong_is_said_without_telling_whether_the_name_exists(name: str, password: str) -> None:
    person("viewer")
    answer = try_it(Client(), name, password)
    assert answer.status_code == 422
    assert "Wrong name or password" in answer.content.decode()
    assert f'value="{name}"' in answer.content.decode()


def test_a_person_who_was_switched_off_does_not_get_in() -> None:
    user = person("viewer")
    user.is_active = False
    user.save()
    assert try_it(Client()).status_code == 422


def test_signing_in_changes_the_session_key() -> None:
    person("viewer")
    client = Client()
    client.get("/ui/sign-in/")
    session = client.session
    session["before"] = True
    session.save()
    before = session.session_key
    try_it(client)
    assert client.session.session_key != before


def test_signing_in_is_audited() -> None:
    person("viewer")
    try_it(Client())
    row = AuditLog.objects.get(event_type="SIGNED_IN")
    assert (row.actor_id, row.reason) == ("user:viewer", "from 127.0.0.1")


def test_a_failed_try_is_audited_by_name_only_where_the_name_exists() -> None:
    person("viewer")
    try_it(Client(), "viewer", "wrong")
    try_it(Client(), "my-password-in-the-wrong-field", "x")
    known, unknown = AuditLog.objects.order_by("id").values_list("target_id", flat=True)
    assert known == "viewer"
    assert unknown.startswith("unknown:")
    assert "password" not in unknown


def test_guessing_from_one_address_is_stopped_even_with_the_right_password_at_last() -> None:
    person("viewer")
    for _ in range(20):
        try_it(Client(), "viewer", "wrong")
    answer = try_it(Client())
    assert answer.status_code == 429
    assert "Too many wrong passwords" in answer.content.decode()


def test_other_addresses_may_go_on_meanwhile_with_other_names() -> None:
    person("viewer")
    for _ in range(20):
        try_it(Client(), "nobody", "wrong")
    assert try_it(Client(REMOTE_ADDR="192.0.2.7")).status_code == 302


def test_signing_out_takes_a_post() -> None:
    client = signed_in("viewer")
    assert client.get("/ui/sign-out/").headers["Location"] == "/ui/"
    assert client.get("/ui/").status_code == 200
    assert client.post("/ui/sign-out/").headers["Location"] == "/ui/sign-in/"
    assert client.get("/ui/").status_code == 302


def test_somebody_who_is_signed_in_is_led_on() -> None:
    assert signed_in("viewer").get("/ui/sign-in/").headers["Location"] == "/ui/"


def test_the_sign_in_page_of_a_new_install_says_where_to_begin() -> None:
    assert "set-up link" in Client().get("/ui/sign-in/").content.decode()
    person("viewer")
    assert "set-up link" not in Client().get("/ui/sign-in/").content.decode()
