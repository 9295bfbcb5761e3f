"""The key of a driven agent is good while it lasts and the key of its runner is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from coordinator.identity import session_keys
from coordinator.models import ApiKey, Runner, SessionKey
from tests.approvals.factories import NOW

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def handed() -> None:
    ApiKey.objects.create(name="r", prefix="sbx_", key_hash="k", scopes=["runner"], created_at=NOW)
    Runner.objects.create(
        runner_id="rnr_1",
        hostname="h",
        project_dir="/p",
        executor_profile="claude",
        registered_at=NOW,
        last_heartbeat=NOW,
        registered_by="r",
    )
    SessionKey.objects.create(
        key_hash="abc",
        session_id="ses_1",
        agent_id="agent.one",
        runner_id="rnr_1",
        created_at=NOW,
        expires_at=NOW + timedelta(hours=1),
    )


def test_a_driven_agent_is_known_by_its_key() -> None:
    found = session_keys.find_session_key_identity("abc", NOW)
    assert found is not None
    assert (found.agent_id, found.session_id, found.scopes) == ("agent.one", "ses_1", {"gateway"})


def end() -> None:
    SessionKey.objects.update(expires_at=NOW)


def revoke_the_runners() -> None:
    ApiKey.objects.update(revoked_at=NOW)


def end_the_runners() -> None:
    ApiKey.objects.update(expires_at=NOW)


def delete_the_runners() -> None:
    ApiKey.objects.all().delete()


def delete_the_runner() -> None:
    Runner.objects.all().delete()


@pytest.mark.parametrize(
    "change", [end, revoke_the_runners, end_the_runners, delete_the_runners, delete_the_runner]
)
def test_its_key_ends_with_its_time_and_with_its_runners_key(change: Callable[[], None]) -> None:
    change()
    assert session_keys.find_session_key_identity("abc", NOW) is None
