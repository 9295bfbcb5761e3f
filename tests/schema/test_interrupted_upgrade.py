"""A server that is killed between a migration and what follows it leaves nothing to the next start to notice."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from coordinator.engine import change_triggers
from coordinator.feed import triggers
from coordinator.operations import startup

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def interrupted() -> str:
    """Leave a trigger out, another stale, and a role without its group; return the name of the one left out."""
    missing, stale = "sbx_feed_runs_insert", "sbx_feed_agents_insert"
    with connection.cursor() as cursor:
        for name, table in ((missing, "runs"), (stale, "agents")):
            change_triggers.drop_feed_trigger(connection, cursor, name, table)
        if connection.vendor == "postgresql":
            cursor.execute(
                f"CREATE TRIGGER {stale} AFTER INSERT ON agents EXECUTE FUNCTION sbx_feed_agents()"
            )
        else:
            cursor.execute(f"CREATE TRIGGER {stale} AFTER INSERT ON agents BEGIN SELECT 1; END")
    Group.objects.get(name="approver").delete()
    return missing


def sound() -> bool:
    wanted = {
        name: trigger.trigger_fingerprint
        for name, trigger in triggers.build_expected_triggers(connection).items()
    }
    stands = {
        name: fingerprint
        for name, (_, fingerprint) in triggers.load_current_trigger_fingerprints(connection).items()
    }
    return stands == wanted and Group.objects.filter(name="approver").exists()


def test_the_next_start_puts_up_what_is_missing(interrupted: str) -> None:
    said: list[str] = []
    startup.check_and_migrate_database(migrate=True, say=said.append)
    assert sound()
    assert said == ["Restored 2 of the feed's triggers that an interrupted upgrade left out."]
    startup.check_and_migrate_database(migrate=True, say=said.append)
    assert len(said) == 1


def test_what_a_newer_version_put_up_is_left_to_it(interrupted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = startup.migrations_on_disk()
    monkeypatch.setattr(startup, "applied_migrations", lambda: known | {("coordinator", "9999_more")})
    startup.check_and_migrate_database(migrate=True, say=lambda _: None)
    assert interrupted not in triggers.load_current_trigger_fingerprints(connection)
    triggers.synchronize_feed_triggers(connection)
