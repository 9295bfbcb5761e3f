"""A test that commits leaves the database as it was: our own fixture, since Django's flush does not."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.utils import timezone

from coordinator.feed import triggers
from coordinator.models import Agent, AuditLog, Change, Event, PluginSetting, Session
from tests.standing import Standing

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def standing() -> Standing:
    return Standing()


def make_a_mess() -> None:
    now = timezone.now()
    session = Session.objects.create(session_id="ses_a", status="running", created_at=now)
    Event.objects.create(session=session, event_type="message", timestamp="now")
    AuditLog.objects.create(timestamp=now, event_type="X", result="success")
    User.objects.create_user("alice").groups.add(Group.objects.get(name="viewer"))


def test_emptied_tables_include_the_unmanaged_one(standing: Standing) -> None:
    make_a_mess()
    standing.restore()
    assert not Session.objects.exists()
    assert not AuditLog.objects.exists()
    assert not User.objects.exists()
    assert not Change.objects.exists()


def test_changed_and_deleted_seeds_come_back(standing: Standing) -> None:
    make_a_mess()
    Agent.objects.update(name="Renamed")
    PluginSetting.objects.filter(plugin_id="mind.deepseek").delete()
    Group.objects.all().delete()
    standing.restore()
    assert Agent.objects.get().name == "Cloto Assistant"
    assert PluginSetting.objects.filter(plugin_id="mind.deepseek").exists()
    assert Group.objects.get(name="approver").permissions.filter(codename="add_grant").exists()
    assert Standing().rows == standing.rows


def test_sequences_go_on(standing: Standing) -> None:
    first = AuditLog.objects.create(timestamp=timezone.now(), event_type="X", result="success").pk
    standing.restore()
    assert AuditLog.objects.create(timestamp=timezone.now(), event_type="X", result="success").pk > first


def test_triggers_come_back(standing: Standing) -> None:
    triggers.drop_feed_triggers(connection)
    standing.restore()
    assert set(triggers.load_current_trigger_fingerprints(connection)) == set(
        triggers.build_expected_triggers(connection)
    )


def test_one_test_leaves_nothing_to_the_next() -> None:
    make_a_mess()
    Agent.objects.all().delete()


def test_the_next_finds_what_migrations_made() -> None:
    assert Agent.objects.count() == 1
    assert not Session.objects.exists()
    assert not Change.objects.exists()
