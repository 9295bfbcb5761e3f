"""Guessing passwords is slow, from one address or from thousands, and locks nobody out of their own account."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth import hashers
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from coordinator.actions.people import accounts
from coordinator.actions.people.accounts import (
    FOR_ACCOUNT,
    FROM_ADDRESS,
    FROM_THIS_MACHINE,
    ON_DEVICE,
    SignInAttempt,
)
from coordinator.errors import TooManyRequests
from coordinator.models import AuditLog
from tests.people import PASSWORD, person

pytestmark = pytest.mark.django_db


def sign_in(client: Client, name: str = "viewer", password: str = PASSWORD) -> HttpResponse:
    return client.post("/ui/sign-in/", {"username": name, "password": password})


def guessed(times: int, name: str = "viewer", address: str = "192.0.2.{n}") -> None:
    """Let so many wrong passwords have come, each from an address of its own."""
    for n in range(times):
        accounts.record_failed_sign_in(SignInAttempt(name, address.format(n=n)), timezone.now())


def elsewhere() -> Client:
    return Client(REMOTE_ADDR="198.51.100.9")


@pytest.mark.parametrize("name", ["viewer", "nobody-has-this-name"])
def test_many_addresses_share_one_count_for_a_name_whether_or_not_it_exists(name: str) -> None:
    person("viewer")
    guessed(FOR_ACCOUNT.tries - 1, name)
    assert sign_in(elsewhere(), name, "wrong").status_code == 422
    answer = sign_in(elsewhere(), name)
    assert answer.status_code == 429
    assert "Too many wrong passwords for this name" in answer.content.decode()
    assert 0 < int(answer.headers["Retry-After"]) <= 600


def test_the_owner_s_own_browser_is_not_slowed_down_by_others() -> None:
    person("viewer")
    home = Client()
    assert sign_in(home).status_code == 302
    home.post("/ui/sign-out/")
    guessed(FOR_ACCOUNT.tries)
    guessed(FROM_ADDRESS.tries, "other-{n}", "127.0.0.1")
    assert sign_in(elsewhere()).status_code == 429
    assert sign_in(home).status_code == 302


def test_a_known_browser_has_a_count_of_its_own() -> None:
    mark = accounts.sign_device_token(person("viewer"))
    attempt = SignInAttempt("viewer", "192.0.2.1", mark)
    for _ in range(ON_DEVICE.tries):
        accounts.require_sign_in_below_limits(attempt, timezone.now())
        accounts.record_failed_sign_in(attempt, timezone.now())
    thief = Client(REMOTE_ADDR="198.51.100.1")
    thief.cookies["signalbox_device"] = mark
    assert sign_in(thief).status_code == 429


@pytest.mark.parametrize(
    "change", ["forged", "made with the secret key alone", "of another person", "too old", "[]"]
)
def test_a_mark_that_is_not_this_persons_opens_nothing(change: str, settings: Any) -> None:
    user, other = person("viewer"), person("approver")
    marks = {
        "forged": accounts.sign_device_token(user)[:-3] + "xyz",
        "made with the secret key alone": accounts.signing.dumps([user.pk, "new"], salt="signalbox.device"),
        "of another person": accounts.sign_device_token(other),
        "too old": accounts.sign_device_token(user),
        "[]": accounts.signing.dumps([], key=settings.SECRET_KEY + user.password, salt="signalbox.device"),
    }
    later = accounts.DEVICE_KNOWN_FOR + timedelta(seconds=5) if change == "too old" else timedelta(0)
    with time_machine.travel(timezone.now() + later, tick=False):
        attempt = SignInAttempt("viewer", "192.0.2.1", marks[change])
        assert ON_DEVICE not in [limit for limit, _ in attempt.applicable_limits()]
        assert {FOR_ACCOUNT, FROM_ADDRESS} <= {limit for limit, _ in attempt.applicable_limits()}


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    guessed(FROM_ADDRESS.tries, "somebody-{n}", "2001:db8:0:1::{n}")
    person("viewer")
    assert sign_in(Client(REMOTE_ADDR="2001:db8:0:1:ffff::1")).status_code == 429
    assert sign_in(Client(REMOTE_ADDR="2001:db8:0:2::1")).status_code == 302


def at(address: str) -> Client:
    return Client(REMOTE_ADDR=address)


SHARED = ["127.0.0.1", "10.0.0.10"]  # this machine's own address, and that of a proxy that is not trusted


@pytest.mark.parametrize("address", SHARED)
def test_wrong_names_from_a_shared_address_lock_nobody_out_who_signed_in_there(address: str) -> None:
    person("viewer")
    assert sign_in(at(address)).status_code == 302
    for n in range(FROM_THIS_MACHINE.tries + 1):
        accounts.record_failed_sign_in(SignInAttempt(f"nobody-{n}", address), timezone.now())
    assert sign_in(at(address)).status_code == 302  # another browser, which nobody knows yet


def test_wrong_names_on_this_machine_lock_out_nobody_who_is_new_here() -> None:
    for n in range(FROM_ADDRESS.tries * 2):
        attempt = SignInAttempt(f"nobody-{n}", f"127.0.0.{n + 1}")
        accounts.require_sign_in_below_limits(attempt, timezone.now())
        accounts.record_failed_sign_in(attempt, timezone.now())
    person("viewer")
    assert sign_in(at("127.0.0.1")).status_code == 302


def test_a_name_guessed_from_one_address_is_locked_there_and_nowhere_else() -> None:
    person("viewer")
    for n in range(FOR_ACCOUNT.tries * 2):
        attempt = SignInAttempt(
            "viewer", f"127.1.2.{n + 1}"
        )  # a program may call from any address of this machine
        try:
            accounts.require_sign_in_below_limits(attempt, timezone.now())
        except TooManyRequests:
            continue
        accounts.record_failed_sign_in(attempt, timezone.now())
    assert sign_in(at("127.0.0.1")).status_code == 429
    assert sign_in(at("192.0.2.77")).status_code == 302


def test_this_machine_is_bounded_too() -> None:
    for n in range(FROM_THIS_MACHINE.tries):
        accounts.record_failed_sign_in(SignInAttempt(f"nobody-{n}", "::1"), timezone.now())
    person("viewer")
    assert sign_in(at("127.0.0.1")).status_code == 429


def test_the_wait_ends() -> None:
    person("viewer")
    guessed(FOR_ACCOUNT.tries)
    with time_machine.travel(timezone.now() + FOR_ACCOUNT.window + timedelta(seconds=1), tick=False):
        assert sign_in(elsewhere()).status_code == 302


def test_that_somebody_is_slowed_down_is_audited_and_what_comes_then_fills_no_log() -> None:
    person("viewer")
    guessed(FOR_ACCOUNT.tries)
    for _ in range(3):
        sign_in(elsewhere())
    told = AuditLog.objects.get(event_type="SIGN_IN_SLOWED")
    assert (told.target_id, told.result) == ("viewer", "denied")
    assert AuditLog.objects.filter(event_type="SIGN_IN_FAILED").count() == FOR_ACCOUNT.tries


def test_a_wrong_password_costs_the_same_for_names_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    off = person("viewer", "switched-off")
    User.objects.filter(pk=off.pk).update(is_active=False)
    person("viewer")
    hasher, made, under_way = hashers.get_hasher(), [], []
    for verb in ("encode", "verify"):
        true = getattr(type(hasher), verb)

        def counted(self: Any, *args: Any, true: Any = true, **more: Any) -> Any:
            if under_way:  # some hashers verify by encoding
                return true(self, *args, **more)
            under_way.append(made.append(1))
            try:
                return true(self, *args, **more)
            finally:
                under_way.clear()

        monkeypatch.setattr(type(hasher), verb, counted)
    costs = []
    for name in ("viewer", "nobody-has-this-name", "switched-off"):
        made.clear()
        assert sign_in(Client(), name, "wrong").status_code == 422
        costs.append(len(made))
    assert costs == [1, 1, 1]


def test_a_nul_in_the_name_is_refused() -> None:
    assert sign_in(Client(), "view\x00er", "wrong").status_code == 400
