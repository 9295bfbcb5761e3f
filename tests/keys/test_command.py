from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.errors import Unauthorized
from coordinator.models import ApiKey

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("apikey", *words, stdout=out, stderr=io.StringIO())
    return out.getvalue().strip()


def test_create_prints_the_key_alone() -> None:
    raw = run("create", "my-runner", "--scope", "runner", "--scope", "read", "--days", "30")
    identity = keys.authenticate_api_key(raw, timezone.now())
    assert (identity.name, identity.scopes) == ("my-runner", {"runner", "read"})
    assert ApiKey.objects.get().expires_at is not None


def test_list_shows_everything_but_the_key() -> None:
    raw = run("create", "my-runner", "--scope", "runner")
    line = run("list")
    assert line.startswith("my-runner  sbx_")
    assert "expires never" in line
    assert raw not in line


def test_revoke_ends_a_key() -> None:
    raw = run("create", "my-runner", "--scope", "runner")
    assert "is revoked" in run("revoke", "my-runner")
    with pytest.raises(Unauthorized):
        keys.authenticate_api_key(raw, timezone.now())
    assert "revoked" in run("list")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create", "my-runner", "--scope", "read"), "already exists"),
        (("create", "x", "--scope", "read", "--days", "0"), "--days"),
        (("revoke", "nobody"), "There is no key named"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(words: tuple[str, ...], says: str) -> None:
    run("create", "my-runner", "--scope", "runner")
    with pytest.raises(CommandError, match=says):
        run(*words)
