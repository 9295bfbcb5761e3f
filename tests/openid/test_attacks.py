"""What proves nothing: forged tokens, answers to other questions, a provider that is not well. Nobody is signed in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.http import HttpResponse
from django.utils import timezone
from joserfc.jwk import OctKey, RSAKey

from coordinator.actions.people import provider_sign_ins
from coordinator.identity.openid import fetching, flow
from coordinator.identity.openid import provider as known
from coordinator.models import AuditLog
from dashboard.accounts import provider_views as view
from tests.openid.conftest import AGAIN, BACK, Visitor
from tests.openid.provider import SECRET, Door, Provider

pytestmark = [pytest.mark.django_db, pytest.mark.one_engine]
Claims = dict[str, Any]


def with_claims(**changed: Any) -> Callable[[Provider], object]:
    """Return what has the provider say something else; None leaves a claim out, numbers of times are from now."""

    def apply(claims: Claims) -> None:
        for name, value in changed.items():
            if value is None:
                claims.pop(name, None)
            else:
                claims[name] = int(time.time()) + value if name in {"exp", "iat", "nbf"} else value

    return lambda provider: setattr(provider, "change", apply)


def signed_by(sign: Callable[[Provider, Claims], str]) -> Callable[[Provider], object]:
    return lambda provider: setattr(provider, "sign", lambda claims: sign(provider, claims))


FORGED: dict[str, Callable[[Provider], object]] = {
    "no signature": signed_by(lambda p, claims: p.unsigned(claims)),
    "HS256 by the public key": signed_by(lambda p, claims: p.by_public_key(claims)),
    "HS256 by the client's secret": signed_by(
        lambda p, claims: p.signed(claims, OctKey.import_key(SECRET), alg="HS256")
    ),
    "another key of that name": signed_by(lambda p, claims: p.signed(claims, p.stranger)),
    "a key that it brings along": signed_by(
        lambda p, claims: p.signed(claims, p.stranger, jwk=p.stranger.as_dict(private=False))
    ),
    "an unknown key": signed_by(lambda p, claims: p.signed(claims, kid="other")),
    "a signature cut off": signed_by(lambda p, claims: p.signed(claims).rpartition(".")[0] + "."),
    "no token": signed_by(lambda p, claims: "garbage"),
    "a token that is none": lambda p: setattr(p, "sign", lambda claims: {"a": 1}),
    "another issuer": with_claims(iss="https://evil.example"),
    "no issuer": with_claims(iss=None),
    "another audience": with_claims(aud="somebody-else"),
    "no audience": with_claims(aud=None),
    "another's token of ours": with_claims(aud="somebody-else", azp="signalbox"),
    "ours among others": with_claims(aud=["signalbox", "somebody-else"]),
    "given to another": with_claims(aud=["signalbox", "somebody-else"], azp="somebody-else"),
    "expired": with_claims(exp=-70),
    "no end": with_claims(exp=None),
    "of the future": with_claims(iat=90),
    "not yet valid": with_claims(nbf=90),
    "of before": with_claims(iat=-90),
    "another nonce": with_claims(nonce="of another flow"),
    "no nonce": with_claims(nonce=None),
    "of another access token": with_claims(at_hash="AAAAAAAAAAAAAAAAAAAAAA"),
    "nobody": with_claims(sub=None),
    "an empty subject": with_claims(sub=""),
    "a number": with_claims(sub=7),
    "a long subject": with_claims(sub="x" * 256),
    "a NUL character": with_claims(sub="a\x00b"),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_a_token_that_is_not_right_signs_nobody_in(
    visitor: Visitor, forge: Callable[[Provider], object]
) -> None:
    forge(visitor.provider)
    refused(visitor, visitor.sign_in(), 403)
    row = AuditLog.objects.get()
    assert (row.event_type, row.result, "id_token" in row.metadata["problem"]) == (
        "SIGN_IN_FAILED",
        "denied",
        True,
    )


FINE: dict[str, Callable[[Provider], object]] = {
    "clocks half a minute apart": with_claims(exp=-30, iat=-45),
    "or ahead": with_claims(iat=45, nbf=45),
    "for us and others": with_claims(aud=["signalbox", "other"], azp="signalbox"),
    "an address without a dot": with_claims(email="anna@corp", email_verified=True),
    "a NUL character in a name": with_claims(given_name="A\x00na"),
}


@pytest.mark.parametrize("change", FINE.values(), ids=FINE.keys())
def test_what_is_right_all_the_same(visitor: Visitor, change: Callable[[Provider], object]) -> None:
    change(visitor.provider)
    assert visitor.sign_in().status_code == 302


def refused(visitor: Visitor, answer: HttpResponse, status: int) -> None:
    assert answer.status_code == status, answer.content
    assert "_auth_user_id" not in visitor.client.session
    assert not User.objects.exclude(username="root").exists()


def test_an_answer_counts_once(visitor: Visitor) -> None:
    brought = visitor.provider.authorize(visitor.set_out())
    assert visitor.come_back(brought).status_code == 302
    visitor.client.logout()
    User.objects.get(username="anna").delete()
    visitor.provider.codes[brought["code"]] = {}
    asked = len(visitor.provider.asked)
    refused(visitor, visitor.come_back(brought), 403)
    assert len(visitor.provider.asked) == asked  # nobody is asked about it


def test_an_answer_counts_in_the_browser_that_set_out(visitor: Visitor, provider: Provider) -> None:
    """Login CSRF: an attacker's own answer, sent to somebody; with the cookie planted, too."""
    brought, victim = provider.authorize(visitor.set_out()), Visitor(provider, secret="66" * 32)
    refused(victim, victim.come_back(brought), 403)
    victim.client.cookies = visitor.client.cookies
    refused(victim, victim.come_back(brought), 403)


BROUGHT: dict[str, dict[str, str]] = {
    "of another issuer": {"iss": "https://evil.example"},
    "of nobody": {"iss": ""},
    "without a code": {"code": ""},
    "with a code of another flow": {"code": "code-0"},
    "with an endless code": {"code": "x" * 5000},
    "with no state": {"state": ""},
    "with another state": {"state": "ÿ"},
    "with a refusal": {"error": "access_denied"},
}


@pytest.mark.parametrize("changed", BROUGHT.values(), ids=BROUGHT.keys())
def test_an_answer_that_is_not_the_one_awaited(visitor: Visitor, changed: dict[str, str]) -> None:
    visitor.provider.authorize(visitor.set_out())  # another flow, of another tab
    brought = visitor.provider.authorize(visitor.set_out())
    refused(visitor, visitor.come_back(brought | changed), 403)


def test_two_tabs_may_be_on_their_way(visitor: Visitor) -> None:
    first, second = (visitor.provider.authorize(visitor.set_out()) for _ in range(2))
    assert visitor.come_back(first).status_code == 302
    assert visitor.come_back(second).status_code == 302


def test_after_ten_minutes_it_is_too_late(visitor: Visitor) -> None:
    brought = visitor.provider.authorize(visitor.set_out())
    with time_machine.travel(timezone.now() + timedelta(minutes=11)):
        refused(visitor, visitor.come_back(brought), 403)


def test_nobody_is_led_out_without_the_token_against_forgery(visitor: Visitor) -> None:
    visitor.client.handler.enforce_csrf_checks = True
    assert visitor.set_out() == ""
    assert visitor.client.post(BACK, {"state": "x", "code": "y"}).status_code == 403


def test_where_the_person_goes_afterwards_is_ours(visitor: Visitor) -> None:
    answer = visitor.come_back(visitor.provider.authorize(visitor.set_out(next="https://evil.example/")))
    assert answer.headers["Location"] == "/ui/"


def test_refusals_fill_no_log_and_lock_nobody_out(visitor: Visitor) -> None:
    for _ in range(35):
        visitor.client.post(BACK, {"state": "x", "code": "y"})
    assert AuditLog.objects.count() == 30
    assert visitor.sign_in().status_code == 302


DISCOVERY, TOKEN, KEYS = "/.well-known/openid-configuration", "/token", "/keys"


def hangs(door: Door) -> None:
    time.sleep(0.5)
    door.say({})


def drips(door: Door) -> None:
    """A byte now and then: no single wait is long."""
    door.send_response(200)
    door.end_headers()
    for _ in range(10):
        door.wfile.write(b" ")
        time.sleep(0.05)


ILL: dict[str, tuple[str, Callable[[Door], object]]] = {
    "an error": (DISCOVERY, lambda door: door.say({}, 500)),
    "no JSON": (DISCOVERY, lambda door: door.page("hello")),
    "a list": (DISCOVERY, lambda door: door.say([])),
    "too deep": (DISCOVERY, lambda door: door.page("[" * 100_000)),
    "too much": (DISCOVERY, lambda door: door.page("x" * 600_000)),
    "nothing for long": (DISCOVERY, hangs),
    "a byte now and then": (DISCOVERY, drips),
    "somewhere else": (DISCOVERY, lambda door: door.lead("http://127.0.0.1:1/")),
    "an address without TLS": (
        DISCOVERY,
        lambda door: door.say(door.of.description() | {"token_endpoint": "http://198.51.100.7/token"}),
    ),
    "another name": (DISCOVERY, lambda door: door.say(door.of.description() | {"issuer": "https://evil.example"})),
    "no address for tokens": (DISCOVERY, lambda door: door.say(door.of.description() | {"token_endpoint": None})),
    "no keys": (KEYS, lambda door: door.say({"keys": []})),
    "a secret as key": (KEYS, lambda door: door.say({"keys": [{"kty": "oct", "k": "AAAA", "kid": "first"}]})),
    "an unreadable key": (KEYS, lambda door: door.say({"keys": [{"kty": "RSA", "n": "!", "e": "?"}]})),
    "an error for the code": (TOKEN, lambda door: door.say({}, 503)),
    "a page for the code": (TOKEN, lambda door: door.page("hello")),
}  # fmt: skip


@pytest.mark.parametrize(("place", "does"), ILL.values(), ids=ILL.keys())
def test_a_provider_that_is_not_well(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, place: str, does: Callable[[Door], object]
) -> None:
    visitor.provider.answers[place] = does
    address = "" if place == DISCOVERY else visitor.set_out()
    # Only now: what is well may take its time on a busy machine.
    monkeypatch.setattr(fetching, "IN_ALL", 0.2)
    monkeypatch.setattr(fetching, "EACH_WAIT", 0.1)
    if place == DISCOVERY:
        assert visitor.set_out() == ""
        answer = visitor.client.post("/ui/sign-in/provider/", {"new_proof": visitor.secret})
        assert visitor.provider.asked == [DISCOVERY]  # not again at once
    else:
        answer = visitor.come_back(visitor.provider.authorize(address))
    refused(visitor, answer, 503)  # type: ignore[arg-type]
    assert "Acme does not answer" in answer.content.decode()


def test_a_provider_that_is_away(visitor: Visitor, settings: Any) -> None:
    settings.OIDC_ISSUER = "http://127.0.0.1:1/realms/test"
    assert visitor.set_out() == ""


def test_one_that_hangs_holds_one_thread_alone(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TURN_WITHIN", 0.05)
    with fetching._turn:
        assert visitor.set_out() == ""


def test_keys_of_kinds_that_nobody_here_knows_are_passed_over(visitor: Visitor) -> None:
    odd = {"kty": "EC", "crv": "of tomorrow", "x": "AAAA", "y": "AAAA", "kid": "odd"}

    def lists_more(door: Door) -> None:
        known = [door.of.keys[name].as_dict(private=False) for name in door.of.listed]
        door.say({"keys": [odd, {"kty": "RSA", "n": "!"}, *known]})

    visitor.provider.answers[KEYS] = lists_more
    assert visitor.sign_in().status_code == 302


def test_a_strangers_answer_leaves_no_session(visitor: Visitor) -> None:
    assert visitor.come_back({"code": "x", "state": "y"}).status_code == 403
    assert not Session.objects.exists()


def test_a_new_key_is_looked_for_once_and_discovery_is_kept(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = visitor.provider
    visitor.sign_in()
    visitor.client.logout()
    assert (provider.asked.count(DISCOVERY), provider.asked.count(KEYS)) == (1, 1)
    monkeypatch.setitem(provider.keys, "second", RSAKey.generate_key(2048, {"kid": "second"}))
    provider.sign = lambda claims: provider.signed(claims, provider.keys["second"], kid="second")
    assert visitor.sign_in().status_code == 403  # it was asked for the keys a moment ago
    monkeypatch.setattr(known, "KEYS_NOT_AGAIN_FOR", 0.0)
    provider.listed = ["first", "second"]
    assert visitor.sign_in().status_code == 302
    assert (provider.asked.count(DISCOVERY), provider.asked.count(KEYS)) == (1, 2)


def made_up(visitor: Visitor) -> HttpResponse:
    """Set out, and come back with a code that nobody gave."""
    return visitor.come_back(visitor.provider.authorize(visitor.set_out()) | {"code": "made-up"})


def test_the_provider_is_asked_about_few_codes_that_it_would_not_have_by_network(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_sign_ins, "CODES", replace(provider_sign_ins.CODES, tries=3))
    visitor.client.defaults["REMOTE_ADDR"] = "198.51.100.7"
    assert [made_up(visitor).status_code for _ in range(3)] == [403] * 3
    answer = made_up(visitor)
    assert (answer.status_code, 0 < int(answer.headers["Retry-After"]) <= 600) == (429, True)
    assert "failed recently" in answer.content.decode()
    assert visitor.provider.asked.count(TOKEN) == AuditLog.objects.count() == 3
    visitor.client.defaults["REMOTE_ADDR"] = "198.51.100.8"
    assert visitor.sign_in().status_code == 302


def test_codes_that_a_stranger_makes_up_keep_nobody_out_whose_browser_was_let_in_before(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_sign_ins, "CODES", replace(provider_sign_ins.CODES, tries=3))
    known_on_device = replace(provider_sign_ins.CODES_ON_DEVICE, tries=2)
    monkeypatch.setattr(provider_sign_ins, "CODES_ON_DEVICE", known_on_device)
    stranger = Visitor(visitor.provider)
    for one in (visitor, stranger):
        one.client.defaults["REMOTE_ADDR"] = "198.51.100.7"
    assert visitor.sign_in().status_code == 302
    assert [made_up(stranger).status_code for _ in range(4)] == [403, 403, 403, 429]
    del visitor.client.cookies[settings.SESSION_COOKIE_NAME]
    assert visitor.sign_in().status_code == 302
    del visitor.client.cookies[settings.SESSION_COOKIE_NAME]
    assert [made_up(visitor).status_code for _ in range(3)] == [403, 403, 429]  # it has a bound of its own
    marked = visitor.client.cookies[settings.PROVIDER_DEVICE_COOKIE_NAME].value
    stranger.client.cookies[settings.PROVIDER_DEVICE_COOKIE_NAME] = f"x{marked}"
    assert made_up(stranger).status_code == 429


def test_a_provider_that_does_not_answer_about_a_code_is_not_asked_again_at_once(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "IN_ALL", 0.2)
    monkeypatch.setattr(fetching, "REST", 60.0)
    first, second, third = (visitor.provider.authorize(visitor.set_out()) for _ in range(3))
    visitor.provider.answers[TOKEN] = hangs
    assert visitor.come_back(first).status_code == 503
    visitor.provider.answers.clear()
    refused(visitor, visitor.come_back(second), 503)
    assert visitor.provider.asked.count(TOKEN) == 1
    monkeypatch.setattr(fetching, "REST", 0.0)
    monkeypatch.setattr(fetching, "IN_ALL", 60.0)
    assert visitor.come_back(third).status_code == 302


def test_an_answer_that_is_sent_twice_at_once_counts_once(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought = visitor.provider.authorize(visitor.set_out())
    other = Visitor(visitor.provider)
    other.client.cookies = visitor.client.cookies.copy()
    answers: list[int] = []

    def meanwhile(request: Any) -> str:
        if not answers:
            request.session.get("anything")  # it is read; then the other one comes
            answers.append(0)
            answers.append(other.come_back(brought).status_code)
        return "127.0.0.1"

    monkeypatch.setattr(view, "client_address", meanwhile)
    assert visitor.come_back(brought).status_code == 403
    assert answers == [0, 302]
    assert visitor.provider.asked.count(TOKEN) == 1


def while_asked(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Have something happen while the provider is asked about a code."""
    finish = flow.redeem_and_verify_sign_in

    def slow(*given: Any, **options: Any) -> Any:
        happens()
        return finish(*given, **options)

    monkeypatch.setattr(flow, "redeem_and_verify_sign_in", slow)


@pytest.mark.parametrize("is_made_up", [False, True])
def test_what_another_tab_does_while_the_provider_is_asked_stays(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, is_made_up: bool
) -> None:
    visitor.sign_in()

    def go_on() -> None:
        session = visitor.client.session
        session["of another tab"] = True
        session.save()

    while_asked(monkeypatch, go_on)
    brought = visitor.provider.authorize(visitor.set_out(AGAIN))
    visitor.come_back(brought | ({"code": "made-up"} if is_made_up else {}))
    assert visitor.client.session["of another tab"] is True


def test_who_signs_out_while_the_provider_is_asked_stays_signed_out(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor.sign_in()
    while_asked(monkeypatch, lambda: Session.objects.all().delete())
    answer = visitor.sign_in(AGAIN)
    assert (answer.status_code, "Start again" in answer.content.decode()) == (403, True)
    assert not Session.objects.exists()
