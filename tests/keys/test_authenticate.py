"""A key opens what its scopes say, until it expires or is revoked; only its hash is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coordinator.actions.people import keys
from coordinator.errors import Conflict, Forbidden, NotFound, Unauthorized, UnprocessableRequest
from coordinator.identity.actors import system_actor
from coordinator.models import ApiKey, AuditLog, RevokedKey

pytestmark = pytest.mark.django_db

# Today: the audit log's own trigger drops rows that are older than 90 days by the database's clock.
NOW = datetime.now(UTC).replace(microsecond=0)
BY = system_actor("tests")


def make(name: str = "ci", **options: object) -> tuple[ApiKey, str]:
    return keys.issue_api_key(**{"name": name, "scopes": ["runner"], "actor": BY, "now": NOW} | options)  # type: ignore[arg-type]


def test_key_says_who_it_is() -> None:
    _row, raw = make(agent_id="agent.a")
    identity = keys.authenticate_api_key(raw, NOW)
    assert (identity.name, identity.scopes, identity.agent_id) == ("ci", {"runner"}, "agent.a")


def test_key_itself_is_stored_nowhere() -> None:
    row, raw = make()
    stored = "".join(map(str, ApiKey.objects.values_list().get(pk=row.pk)))
    assert raw not in stored + str(list(AuditLog.objects.values()))
    assert row.prefix == raw[:12]


def test_unknown_key_is_refused() -> None:
    _row, raw = make()
    for wrong in (raw[:-1], raw.upper(), raw + " ", "", "sbx_" + "x" * 43, "\ud800"):
        with pytest.raises(Unauthorized):
            keys.authenticate_api_key(wrong, NOW)


def test_key_expires_on_the_instant() -> None:
    _row, raw = make(expires_at=NOW + timedelta(hours=1))
    assert keys.authenticate_api_key(raw, NOW + timedelta(minutes=59, seconds=59))
    with pytest.raises(Unauthorized):
        keys.authenticate_api_key(raw, NOW + timedelta(hours=1))


def test_revoked_key_is_refused() -> None:
    row, raw = make()
    keys.invalidate_api_key(row.pk, actor=BY, now=NOW)
    with pytest.raises(Unauthorized):
        keys.authenticate_api_key(raw, NOW)


def test_revoked_key_stays_refused_when_its_row_comes_back() -> None:
    row, raw = make()
    keys.invalidate_api_key(row.pk, actor=BY, now=NOW)
    ApiKey.objects.filter(pk=row.pk).update(revoked_at=None)
    with pytest.raises(Unauthorized):
        keys.authenticate_api_key(raw, NOW)


def test_revoking_twice_is_a_conflict_and_audited_once() -> None:
    row, _raw = make()
    keys.invalidate_api_key(row.pk, actor=BY, now=NOW)
    with pytest.raises(Conflict):
        keys.invalidate_api_key(row.pk, actor=BY, now=NOW)
    assert AuditLog.objects.filter(event_type="API_KEY_REVOKED").count() == 1
    assert RevokedKey.objects.count() == 1


def test_revoking_an_unknown_key_says_so() -> None:
    with pytest.raises(NotFound):
        keys.invalidate_api_key(4711, actor=BY, now=NOW)


def test_use_is_noted_at_most_once_a_minute() -> None:
    row, raw = make()
    for seconds in (0, 30, 61):
        keys.authenticate_api_key(raw, NOW + timedelta(seconds=seconds))
        row.refresh_from_db()
        assert row.last_used_at == NOW + timedelta(seconds=61 if seconds > 60 else 0)


def test_name_is_used_once() -> None:
    make()
    with pytest.raises(Conflict):
        make()
    assert AuditLog.objects.filter(event_type="API_KEY_CREATED").count() == 1


@pytest.mark.parametrize(
    "options", [{"name": "  "}, {"scopes": []}, {"scopes": ["runner", "root"]}, {"expires_at": NOW}]
)
def test_senseless_keys_are_not_made(options: dict[str, object]) -> None:
    with pytest.raises(UnprocessableRequest):
        make(**options)
    assert not ApiKey.objects.exists()


def test_missing_scope_is_named() -> None:
    _row, raw = make()
    with pytest.raises(Forbidden, match="operator"):
        keys.authenticate_api_key(raw, NOW).require_any_scope({"operator"})


def test_row_with_broken_scopes_opens_nothing() -> None:
    row, raw = make()
    ApiKey.objects.filter(pk=row.pk).update(scopes="runner")
    with pytest.raises(Forbidden):
        keys.authenticate_api_key(raw, NOW).require_any_scope({"runner"})
