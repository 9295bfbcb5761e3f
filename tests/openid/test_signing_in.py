"""People sign in at the provider, get the role of their groups, and lose it there as well."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.http import HttpResponse

from coordinator.actions.people import users
from coordinator.edge.http.auth import require_viewer_of_login_session
from coordinator.errors import Unauthorized
from coordinator.identity.actors import system_actor
from coordinator.identity.roles import highest_role_of_user
from coordinator.models import AuditLog, ProviderIdentity
from tests.openid.conftest import AGAIN, CONNECT, ROLES, START, Visitor
from tests.openid.provider import ANNA, Provider

pytestmark = pytest.mark.django_db


def words(answer: HttpResponse) -> str:
    return " ".join(answer.content.decode().split())


def anna() -> User:
    return User.objects.get(username="anna")


def test_somebody_new_gets_an_account_with_the_role_of_their_groups(visitor: Visitor) -> None:
    answer = visitor.sign_in()
    assert (answer.status_code, answer.headers["Location"]) == (302, "/ui/approvals/")
    user = anna()
    assert (highest_role_of_user(user), user.has_usable_password(), user.is_superuser) == (
        "approver",
        False,
        False,
    )
    assert ProviderIdentity.objects.get().subject == "u-1"
    assert visitor.client.get("/ui/approvals/").status_code == 200
    made, signed_in = AuditLog.objects.filter(target_id="anna").order_by("id")
    assert (made.event_type, made.actor_id) == ("USER_CREATED", "system:single-sign-on")
    assert (signed_in.event_type, signed_in.metadata["subject"]) == ("SIGNED_IN", "u-1")


def test_what_the_browser_is_sent_with(visitor: Visitor) -> None:
    asked = parse_qs(urlsplit(visitor.set_out()).query)
    assert asked["redirect_uri"][0].endswith("/ui/sign-in/provider/back/")
    assert {"state", "nonce", "code_challenge"} <= asked.keys()
    assert "code_verifier" not in asked


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        (["everyone"], "viewer"),
        (["everyone", "bosses", "ops"], "admin"),
        ("ops", "approver"),
        (["OPS", 7], None),
        (None, None),
    ],
)
def test_roles_follow_the_groups_at_each_sign_in(visitor: Visitor, groups: Any, role: str | None) -> None:
    visitor.sign_in()
    visitor.client.logout()
    visitor.provider.person["groups"] = groups
    answer = visitor.sign_in()
    assert highest_role_of_user(anna()) == role
    assert anna().is_superuser is False
    if role is None:
        assert (answer.status_code, "You have no role here" in words(answer)) == (403, True)
        assert visitor.client.get("/ui/").status_code == 302


def test_groups_may_lie_deeper(visitor: Visitor, settings: Any) -> None:
    settings.OIDC_GROUPS_CLAIM = "realm_access.roles"
    visitor.provider.person = ANNA | {"groups": [], "realm_access": {"roles": ["bosses"]}}
    assert visitor.sign_in().status_code == 302
    assert highest_role_of_user(anna()) == "admin"


def test_groups_may_be_told_at_the_userinfo_door_alone(visitor: Visitor, provider: Provider) -> None:
    provider.about["userinfo_endpoint"] = f"{provider.issuer}/userinfo"
    told, provider.person = provider.person, {"sub": "u-1"}
    provider.answers["/userinfo"] = lambda door: door.say(told if "Bearer at" in str(door.headers) else {})
    assert visitor.sign_in().status_code == 302
    assert highest_role_of_user(anna()) == "approver"
    visitor.client.logout()
    told = {"sub": "u-2", "groups": ["bosses"]}
    assert visitor.sign_in().status_code == 403
    assert highest_role_of_user(anna()) == "approver"


@pytest.mark.parametrize(
    "told", [{"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {}}}, {"hasgroups": True}]
)
def test_groups_that_are_too_many_to_tell_take_nobodys_role(visitor: Visitor, told: dict[str, Any]) -> None:
    visitor.sign_in()
    visitor.client.logout()
    visitor.provider.person = {name: value for name, value in ANNA.items() if name != "groups"} | told
    answer = visitor.sign_in()
    assert (answer.status_code, "your role here is unchanged" in words(answer)) == (403, True)
    assert highest_role_of_user(anna()) == "approver"


def test_a_name_that_is_none_here_is_said(visitor: Visitor) -> None:
    visitor.provider.person = {"sub": "auth0|123", "groups": ["ops"]}
    answer = visitor.sign_in()
    assert (answer.status_code, "SIGNALBOX_OIDC_NAME_CLAIM" in words(answer)) == (422, True)


def test_the_first_account_of_all_is_an_administrators(visitor: Visitor) -> None:
    User.objects.all().delete()
    answer = visitor.sign_in()
    assert (answer.status_code, "no administrator yet" in words(answer)) == (409, True)
    visitor.provider.person["groups"] = ["bosses"]
    assert visitor.sign_in().status_code == 302


def test_nobody_without_a_role_gets_an_account(visitor: Visitor) -> None:
    visitor.provider.person["groups"] = ["cooks"]
    assert visitor.sign_in().status_code == 403
    assert not User.objects.filter(username="anna").exists()


def test_a_superuser_whose_groups_do_not_say_admin_is_none_any_more(visitor: Visitor) -> None:
    visitor.sign_in()
    visitor.client.logout()
    User.objects.update(is_superuser=True)
    visitor.sign_in()
    assert highest_role_of_user(anna()) == "approver"


@pytest.mark.parametrize("name", ["anna", "ANNA"])
def test_an_account_of_the_same_name_or_address_is_not_taken_over(visitor: Visitor, name: str) -> None:
    local = User.objects.create_user(name, email="anna@example.test", password="pw")
    visitor.provider.person |= {"email": "anna@example.test", "email_verified": True}
    answer = visitor.sign_in()
    assert (answer.status_code, "That name is taken" in words(answer)) == (409, True)
    assert "_auth_user_id" not in visitor.client.session
    local.refresh_from_db()
    assert (local.has_usable_password(), local.groups.count()) == (True, 0)
    assert not ProviderIdentity.objects.exists()


def test_the_subject_is_who_it_is_whatever_the_name(visitor: Visitor) -> None:
    visitor.sign_in()
    visitor.client.logout()
    visitor.provider.person["preferred_username"] = "anna.miller"
    assert visitor.sign_in().status_code == 302
    assert sorted(user.username for user in User.objects.all()) == ["anna", "root"]
    visitor.client.logout()
    visitor.provider.person = ANNA | {"sub": "u-2"}  # somebody who got the name that she had
    assert visitor.sign_in().status_code == 409


def test_who_is_switched_off_stays_out(visitor: Visitor) -> None:
    visitor.sign_in()
    visitor.client.logout()
    User.objects.update(is_active=False)
    answer = visitor.sign_in()
    assert (answer.status_code, "switched off" in words(answer)) == (403, True)
    assert "_auth_user_id" not in visitor.client.session


def test_deleting_the_person_lets_them_begin_anew(visitor: Visitor) -> None:
    visitor.sign_in()
    users.delete_user(anna().pk, actor=system_actor("test"))
    assert not ProviderIdentity.objects.exists()
    assert visitor.sign_in().status_code == 302


def test_the_sign_in_page_names_the_provider_and_may_be_without_passwords(
    visitor: Visitor, settings: Any
) -> None:
    page = words(visitor.client.get("/ui/sign-in/"))  # type: ignore[arg-type]
    assert "Sign in with Acme" in page
    assert 'name="password"' in page
    settings.PASSWORD_SIGN_IN = False
    page = words(visitor.client.get("/ui/sign-in/"))  # type: ignore[arg-type]
    assert 'name="password"' not in page
    User.objects.create_user("bob", password="pw")
    visitor.client.post("/ui/sign-in/", {"username": "bob", "password": "pw"})
    assert "_auth_user_id" not in visitor.client.session


def test_turning_passwords_off_ends_what_one_began(visitor: Visitor, bob: User, settings: Any) -> None:
    there = Visitor(visitor.provider)
    there.sign_in()
    assert visitor.client.get("/ui/approvals/").status_code == 200
    settings.PASSWORD_SIGN_IN = False
    assert visitor.client.get("/ui/approvals/").headers["Location"].startswith("/ui/sign-in/")
    with pytest.raises(Unauthorized):
        require_viewer_of_login_session(visitor.client.cookies["signalbox_session"].value)
    form = {"confirm_password": "pw", "new_proof": visitor.secret}
    assert visitor.client.post("/ui/sign-in/again/", form).headers["Location"].startswith("/ui/sign-in/")
    assert there.client.get("/ui/approvals/").status_code == 200
    assert require_viewer_of_login_session(there.client.cookies["signalbox_session"].value).username == "anna"


def test_who_gives_it_up_and_enters_a_password_is_signed_in_for_as_long_as_ever(
    visitor: Visitor, settings: Any
) -> None:
    User.objects.create_superuser("bob", password="pw")
    assert visitor.set_out()
    form = {"username": "bob", "password": "pw", "new_proof": visitor.secret}
    assert visitor.client.post("/ui/sign-in/", form).status_code == 302
    assert visitor.client.session.get_expiry_age() == settings.SESSION_COOKIE_AGE


def test_without_a_provider_there_is_no_door(client: Any) -> None:
    assert client.post(START).status_code == client.get(f"{START}back/").status_code == 404
    assert "Sign in with" not in client.get("/ui/sign-in/").content.decode()


def decide(visitor: Visitor) -> HttpResponse:
    return visitor.client.post("/ui/approvals/decide/", {"ids": "perm_none", "verdict": "approved"})  # type: ignore[return-value]


def test_the_session_is_tied_to_the_browser_and_ends_when_the_groups_should_be_asked_again(
    visitor: Visitor,
) -> None:
    visitor.sign_in()
    assert decide(visitor).headers.get("Signalbox-Confirm") is None
    assert 0 < visitor.client.session.get_expiry_age() <= 12 * 3600
    visitor.client.defaults["HTTP_X_SIGNALBOX_PROOF"] = "00" * 32  # the cookie alone
    answer = decide(visitor)
    assert (answer.status_code, answer.headers["Signalbox-Confirm"]) == (403, "provider")
    assert "Confirm with Acme" in words(answer)


def test_a_new_secret_is_tied_by_signing_in_there_again(visitor: Visitor) -> None:
    visitor.sign_in()
    visitor.secret = visitor.client.defaults["HTTP_X_SIGNALBOX_PROOF"] = "77" * 32
    address = visitor.set_out(AGAIN)
    asked = parse_qs(urlsplit(address).query)
    assert (asked["prompt"], asked["max_age"]) == (["login"], ["0"])
    answer = visitor.come_back(visitor.provider.authorize(address))
    assert (answer.status_code, "Confirmed" in words(answer)) == (200, True)
    assert decide(visitor).headers.get("Signalbox-Confirm") is None
    assert AuditLog.objects.filter(event_type="SIGN_IN_CONFIRMED", target_id="anna").count() == 1


def old(claims: dict[str, Any]) -> None:
    claims["auth_time"] -= 120


def without_time(claims: dict[str, Any]) -> None:
    del claims["auth_time"]


def somebody_else(claims: dict[str, Any]) -> None:
    claims["sub"] = "u-9"


def no_group(claims: dict[str, Any]) -> None:
    claims["groups"] = []


@pytest.mark.parametrize("change", [old, without_time, somebody_else, no_group])
def test_what_confirms_nothing(visitor: Visitor, change: Any) -> None:
    visitor.sign_in()
    visitor.secret = visitor.client.defaults["HTTP_X_SIGNALBOX_PROOF"] = "77" * 32
    visitor.provider.change = change
    assert visitor.sign_in(AGAIN).status_code == 403
    assert decide(visitor).status_code == 403


def test_who_has_the_cookie_cannot_have_its_owner_confirm_their_secret(
    visitor: Visitor, provider: Provider
) -> None:
    """They set out with a secret of their own, and lead the owner's browser to the provider."""
    visitor.sign_in()
    thief = Visitor(provider, secret="66" * 32)
    thief.client.cookies = visitor.client.cookies
    brought = provider.authorize(thief.set_out(AGAIN))
    assert visitor.come_back(brought).status_code == 403
    assert decide(thief).status_code == 403


def test_without_a_secret_nobody_is_led_anywhere_to_confirm(visitor: Visitor) -> None:
    visitor.sign_in()
    assert visitor.set_out(AGAIN, new_proof="") == ""


def test_signing_out_leads_to_the_provider_once(visitor: Visitor, provider: Provider) -> None:
    visitor.sign_in()
    answer = words(visitor.client.post("/ui/sign-out/"))  # type: ignore[arg-type]
    assert f"{provider.issuer}/logout?client_id=signalbox" in answer
    assert "id_token_hint=ey" in answer
    assert "_auth_user_id" not in visitor.client.session
    Group.objects.get(name="approver").user_set.add(User.objects.create_user("bob", password="pw"))
    visitor.client.force_login(User.objects.get(username="bob"))
    assert visitor.client.post("/ui/sign-out/").status_code == 302


def test_one_whose_account_another_program_deleted_begins_anew(visitor: Visitor) -> None:
    visitor.sign_in()
    anna().delete()
    assert visitor.sign_in().status_code == 302
    assert ProviderIdentity.objects.get().user_id == anna().pk


LEAVE = "/ui/account/provider/leave/"


@pytest.fixture
def bob(visitor: Visitor) -> User:
    """Somebody with an account of ours, signed in with its password."""
    user = User.objects.create_superuser("bob", password="pw")
    visitor.client.force_login(user)
    return user


def test_the_owner_of_an_account_connects_it(visitor: Visitor, bob: User) -> None:
    assert "Connect with Acme" in words(visitor.client.get("/ui/account/"))  # type: ignore[arg-type]
    visitor.provider.person["groups"] = ["bosses"]
    answer = visitor.sign_in(CONNECT)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/ui/account/")
    page = words(visitor.client.get("/ui/account/"))  # type: ignore[arg-type]
    assert "is connected with Acme" in page
    visitor.client.logout()
    visitor.provider.person["groups"] = ["everyone"]
    assert visitor.sign_in().status_code == 302
    bob.refresh_from_db()
    assert (highest_role_of_user(User.objects.get(username="bob")), bob.has_usable_password()) == (
        "viewer",
        True,
    )
    assert AuditLog.objects.filter(event_type="SIGN_IN_CONNECTED", target_id="bob").count() == 1


def test_the_last_administrator_does_not_lose_that_by_connecting(visitor: Visitor, bob: User) -> None:
    User.objects.get(username="root").delete()
    assert visitor.sign_in(CONNECT).status_code == 409
    assert (highest_role_of_user(bob), ProviderIdentity.objects.count()) == ("admin", 0)


def test_who_has_another_account_connects_no_second(visitor: Visitor, bob: User) -> None:
    visitor.provider.person["groups"] = ["bosses"]
    other = Visitor(visitor.provider)
    other.sign_in()
    assert visitor.sign_in(CONNECT).status_code == 409
    other.sign_in(AGAIN)
    assert ProviderIdentity.objects.get().user_id == anna().pk
    visitor.provider.person["sub"] = "u-8"
    assert other.sign_in(CONNECT).status_code == 409  # and no account has two people


def test_the_cookie_alone_connects_nothing(visitor: Visitor, bob: User) -> None:
    visitor.client.defaults["HTTP_X_SIGNALBOX_PROOF"] = "00" * 32
    assert visitor.set_out(CONNECT) == ""


def test_the_owner_of_an_account_disconnects_it(visitor: Visitor, bob: User) -> None:
    visitor.provider.person["groups"] = ["bosses"]
    visitor.sign_in(CONNECT)
    visitor.client.logout()
    visitor.sign_in()
    assert "Disconnect from Acme" in words(visitor.client.get("/ui/account/"))  # type: ignore[arg-type]
    assert visitor.client.post(LEAVE).headers["Location"] == "/ui/account/"
    assert not ProviderIdentity.objects.exists()
    assert highest_role_of_user(User.objects.get(username="bob")) == "admin"
    row = AuditLog.objects.get(event_type="SIGN_IN_DISCONNECTED")
    assert (row.target_id, row.metadata["subject"]) == ("bob", "u-1")
    assert "Connect with Acme" in words(visitor.client.get("/ui/account/"))  # type: ignore[arg-type]
    visitor.client.defaults["HTTP_X_SIGNALBOX_PROOF"] = "00" * 32
    assert decide(visitor).headers["Signalbox-Confirm"] == "password"


def disconnected(visitor: Visitor, had: str, groups: list[str]) -> str | None:
    """Connect bob, who has the role `had`, while in `groups`; disconnect him, and return which role he keeps."""
    bob = User.objects.create_user("bob", password="pw")
    bob.groups.add(Group.objects.get(name=had))
    visitor.client.force_login(bob)
    visitor.provider.person["groups"] = groups
    visitor.sign_in(CONNECT)
    visitor.client.logout()
    visitor.sign_in()
    visitor.client.post(LEAVE)
    return highest_role_of_user(User.objects.get(username="bob"))


@pytest.mark.parametrize(
    ("had", "group", "keeps"),
    [("viewer", "bosses", "viewer"), ("approver", "ops", "approver"), ("admin", "everyone", "viewer")],
)
def test_who_disconnects_keeps_no_role_that_the_groups_gave(
    visitor: Visitor, had: str, group: str, keeps: str
) -> None:
    assert disconnected(visitor, had, [group]) == keeps
    row = AuditLog.objects.get(event_type="SIGN_IN_DISCONNECTED")
    assert (row.metadata["role"], row.metadata["role_of_the_groups"]) == (keeps, ROLES[group])


def test_who_disconnects_has_no_role_where_none_is_known_from_before(visitor: Visitor) -> None:
    visitor.sign_in()
    user = anna()
    user.set_password("pw")
    user.save()
    visitor.client.logout()
    visitor.sign_in()
    assert "you have no role until an administrator" in words(visitor.client.get("/ui/account/"))  # type: ignore[arg-type]
    visitor.client.post(LEAVE)
    assert (highest_role_of_user(anna()), ProviderIdentity.objects.count()) == (None, 0)


def test_who_has_no_password_stays_connected(visitor: Visitor) -> None:
    visitor.sign_in()
    assert "Disconnect" not in words(visitor.client.get("/ui/account/"))  # type: ignore[arg-type]
    visitor.client.post(LEAVE)
    assert ProviderIdentity.objects.exists()
    assert "Acme is the only way for you to sign in" in words(visitor.client.get("/ui/account/"))  # type: ignore[arg-type]


def test_where_passwords_are_off_everybody_stays_connected(
    visitor: Visitor, bob: User, settings: Any
) -> None:
    visitor.provider.person["groups"] = ["bosses"]
    visitor.sign_in(CONNECT)
    settings.PASSWORD_SIGN_IN = False
    visitor.client.post(LEAVE)
    assert ProviderIdentity.objects.exists()


def test_the_cookie_alone_disconnects_nothing(visitor: Visitor, bob: User) -> None:
    visitor.provider.person["groups"] = ["bosses"]
    visitor.sign_in(CONNECT)
    visitor.client.defaults["HTTP_X_SIGNALBOX_PROOF"] = "00" * 32
    assert visitor.client.post(LEAVE).status_code == 403
    assert ProviderIdentity.objects.exists()
