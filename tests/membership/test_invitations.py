"""Invitations: links by which people make their own accounts."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group, User
from django.test import Client

from coordinator.actions.people import accounts, invitations
from coordinator.errors import Conflict, Forbidden, UnprocessableRequest
from coordinator.identity.roles import highest_role_of_user
from coordinator.models import AuditLog, Invitation, Passkey
from tests.passkeys.authenticator import Authenticator
from tests.people import person, signed_in
from tests.served import PROOF

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC).replace(microsecond=0)  # the audit log keeps 90 days by the clock of the database
GOOD = "seven-green-lamps"
INVITE, JOIN = "/ui/people/invite/", "/ui/people/join/"


@pytest.fixture(autouse=True)
def clock() -> Any:
    with time_machine.travel(NOW, tick=False) as traveller:
        yield traveller


@pytest.fixture
def ada() -> User:
    return person("admin", "ada")


def invite(by: User, role: str = "approver", **changes: Any) -> str:
    return invitations.create_invitation(**{"role": role, "days": 3, "user": by, "now": NOW, **changes})[1]


def form(token: str, name: str = "grace", **changes: str) -> dict[str, str]:
    return {"token": token, "username": name, "password1": GOOD, "password2": GOOD} | changes


def test_the_link_makes_an_account_with_the_role_and_signs_its_person_in(ada: User) -> None:
    client = Client()
    answer = client.post(JOIN, form(invite(ada)), follow=True)
    assert answer.redirect_chain == [("/ui/", 302)]
    grace = User.objects.get(username="grace")
    assert (highest_role_of_user(grace), grace.is_superuser) == ("approver", False)
    assert client.session["_auth_user_id"] == str(grace.pk)
    assert Invitation.objects.get().used_by == grace.pk


def test_the_audit_log_says_who_invited_whom_and_who_came(ada: User) -> None:
    Client().post(JOIN, form(invite(ada, label="Grace of ops")))
    rows = [(row.event_type, row.actor_id, row.target_id) for row in AuditLog.objects.order_by("id")]
    number = Invitation.objects.get().pk
    assert rows == [
        ("INVITATION_CREATED", "user:ada", f"invitation:{number}"),
        ("USER_CREATED", "user:ada", "grace"),
        ("INVITATION_USED", "user:grace", f"invitation:{number}"),
    ]
    assert AuditLog.objects.earliest("id").metadata["for"] == "Grace of ops"


def test_a_link_works_once(ada: User) -> None:
    token = invite(ada)
    Client().post(JOIN, form(token))
    again = Client().post(JOIN, form(token, "eve"))
    assert (again.status_code, User.objects.filter(username="eve").exists()) == (409, False)


def test_of_two_at_once_only_one_gets_in(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    token = invite(ada)
    stale = invitations.find_invitation_by_token(token, NOW)
    monkeypatch.setattr(invitations, "find_invitation_by_token", lambda *_: stale)
    for name in ("grace", "eve"):
        user = invitations.users.build_user(name, GOOD)
        if name == "grace":
            invitations.accept_invitation(token, user, address="192.0.2.1", now=NOW)
        else:
            with pytest.raises(Conflict, match="not valid"):
                invitations.accept_invitation(token, user, address="192.0.2.1", now=NOW)
    assert not User.objects.filter(username="eve").exists()


def test_a_link_ends_with_its_time(ada: User, clock: Any) -> None:
    token = invite(ada, days=1)
    clock.move_to(NOW + timedelta(days=1))
    assert Client().get(JOIN, {"token": token}).status_code == 409
    assert Client().post(JOIN, form(token)).status_code == 409
    assert not User.objects.filter(username="grace").exists()


def test_a_revoked_link_lets_nobody_in(ada: User) -> None:
    token = invite(ada)
    invitations.revoke_invitation(Invitation.objects.get().pk, user=ada, now=NOW)
    assert Client().post(JOIN, form(token)).status_code == 409
    with pytest.raises(Conflict):
        invitations.revoke_invitation(Invitation.objects.get().pk, user=ada, now=NOW)


@pytest.mark.parametrize("change", [{"is_active": False}, {"groups": []}])
def test_a_link_ends_with_the_role_of_who_made_it(ada: User, change: dict[str, Any]) -> None:
    token = invite(ada)
    if "groups" in change:
        ada.groups.set([Group.objects.get(name="approver")])
    else:
        User.objects.filter(pk=ada.pk).update(**change)
    assert Client().post(JOIN, form(token)).status_code == 409


def test_only_administrators_invite(ada: User) -> None:
    with pytest.raises(Forbidden):
        invite(person("approver"))
    assert signed_in("viewer").post(INVITE, {"role": "admin", "days": "3"}).status_code == 403
    assert not Invitation.objects.exists()


@pytest.mark.parametrize("wrong", [{"role": "owner"}, {"role": ""}, {"days": 30}, {"label": "x" * 101}])
def test_an_invitation_has_a_role_and_a_short_life(ada: User, wrong: dict[str, Any]) -> None:
    with pytest.raises(UnprocessableRequest):
        invite(ada, **wrong)


def test_only_the_tokens_hash_is_kept(ada: User) -> None:
    token = invite(ada)
    stored = str(list(Invitation.objects.values())) + str(list(AuditLog.objects.values()))
    assert token not in stored


def test_the_page_shows_the_link_once(ada: User) -> None:
    client = Client()
    client.force_login(ada)
    shown = client.post(INVITE, {"label": "Grace", "role": "viewer", "days": "1"}).content.decode()
    link = re.search(r"https?://\S+/ui/people/join/\?token=[\w-]+", shown)
    assert link is not None
    later = client.get("/ui/people/").content.decode()
    assert "token=" not in later
    assert "Grace" in later
    path = "/" + link.group().split("/", 3)[3]
    assert Client().get(path).status_code == 200


def test_a_wrong_name_or_password_keeps_the_link_good_and_stands_at_its_field(ada: User) -> None:
    token = invite(ada)
    page = Client().post(JOIN, form(token, password1="grace", password2="grace"))
    assert page.status_code == 422
    assert set(page.context["form"].errors) == {"password1"}
    taken = Client().post(JOIN, form(token, "ADA"))
    assert set(taken.context["form"].errors) == {"username"}
    assert Client().post(JOIN, form(token)).status_code == 302


def test_the_rules_for_passwords_are_shown_before(ada: User) -> None:
    assert "at least 8 characters" in Client().get(JOIN, {"token": invite(ada)}).content.decode()


def test_while_passwords_are_off_no_invitation_is_made_or_used(ada: User, settings: Any) -> None:
    token = invite(ada)
    settings.PASSWORD_SIGN_IN = False
    assert Client().post(JOIN, form(token)).status_code == 409
    with pytest.raises(Conflict, match="Password sign-in is off"):
        invite(ada)


class TestWithPasskey:
    @pytest.fixture(autouse=True)
    def localhost(self, settings: Any) -> None:
        settings.PUBLIC_URL, settings.OWN_HOST = "http://localhost", ""

    def join(self, token: str, name: str = "grace", secret: str = PROOF) -> Any:
        client = Client(headers={"Host": "localhost"})
        fields = {"token": token, "username": name, "new_proof": PROOF}
        options = client.post(JOIN + "passkey/options/", fields)
        if options.status_code != 200:
            return options
        credential = json.dumps(Authenticator().create(options.json()))
        fields |= {"credential": credential, "new_proof": secret}
        return client.post(JOIN + "passkey/", fields)

    def test_the_link_makes_an_account_that_signs_in_with_the_passkey(self, ada: User) -> None:
        assert self.join(invite(ada)).headers["Location"] == "/ui/account/"
        grace = User.objects.get(username="grace")
        assert Passkey.objects.get().user_id == grace.pk
        assert highest_role_of_user(grace) == "approver"

    def test_who_joined_with_a_passkey_sets_a_password_without_an_old_one(self, ada: User) -> None:
        self.join(invite(ada))
        grace = User.objects.get(username="grace")
        assert accounts.has_unknown_password(grace)
        client = Client()
        client.force_login(grace)
        assert "Set a password" in client.get("/ui/account/").text
        page = client.get("/ui/account/password/").text
        assert "old_password" not in page
        weak = client.post("/ui/account/password/", {"new_password1": "grace", "new_password2": "grace"})
        assert weak.status_code == 422
        new = "correct horse battery 9"
        client.post("/ui/account/password/", {"new_password1": new, "new_password2": new})
        grace.refresh_from_db()
        assert grace.check_password(new)
        assert not accounts.has_unknown_password(grace)
        assert "old_password" in client.get("/ui/account/password/").text

    def test_a_bad_link_or_name_gets_no_challenge(self, ada: User) -> None:
        assert self.join("guessed").status_code == 409
        assert self.join(invite(ada), "ada").status_code == 409
        assert self.join(invite(ada), "a b/c").status_code == 422

    def test_what_another_browser_made_lets_nobody_in(self, ada: User) -> None:
        assert self.join(invite(ada), secret="0" * 64).status_code == 403
        assert not User.objects.filter(username="grace").exists()
        assert Invitation.objects.get().used_at is None
