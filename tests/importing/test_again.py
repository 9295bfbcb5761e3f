"""Importing again adds nothing, and an owner's rows count more than those that an installation begins with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from coordinator.importing.column_conversion import model_columns_by_name, normalize_value_for_comparison
from coordinator.importing.seeds import SEEDS, is_unchanged_seed_row
from coordinator.models import Agent, Event, PluginConfig, PluginSetting, Session
from tests.importing.sources import AGENT, EVENT, RUN, SESSION, add, brought, database, kept, newest
from tests.secrets.corpus import SECRETS

pytestmark = pytest.mark.django_db


def numbers(path: Path, **options: Any) -> dict[str, tuple[int, int, int]]:
    return {
        one.table: (one.added, one.present, one.conflicts.total) for one in brought(path, **options).outcomes
    }


def count(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return int(cursor.fetchone()[0])


def test_rows_without_a_key_are_kept_aside_and_never_doubled(path: Path) -> None:
    file = newest(path)
    add(file, "agents", {**AGENT, "id": None}, {**AGENT, "id": None, "name": "Other"})
    add(file, "sessions", {**SESSION, "session_id": None}, SESSION)
    add(file, "runs", {**RUN, "run_id": None, "parameters": "{}"})
    stood = count("agents")
    for _ in range(2):
        done = brought(path)
        assert [line["row"]["name"] for line in kept(done, table="agents", why="it has no id")] == [
            "Watch",
            "Other",
        ]
        assert count("agents") == stood
        assert (count("sessions"), count("runs")) == (1, 0)


def test_equal_instants_written_differently_are_equal(path: Path) -> None:
    file = newest(path)
    add(file, "sessions", SESSION)
    add(file, "runs", {**RUN, "parameters": '{"prompt": "p"}', "started_at": "2026-02-23T12:00:00Z"})
    add(file, "events", EVENT)
    brought(path)
    add(file, "sessions", {**SESSION, "session_id": "ses_2"})
    file.execute("UPDATE sessions SET created_at = '2026-02-23 13:00:00.000+01:00'")
    file.execute("UPDATE runs SET started_at = '2026-02-23T12:00:00+00:00'")
    file.execute("UPDATE events SET timestamp = '2026-02-23T14:00:01.000000+02:00'")
    file.commit()
    again = numbers(path)
    assert again["sessions"] == (1, 1, 0)
    assert again["runs"] == (0, 1, 0)
    assert again["events"] == (0, 1, 0)


def test_the_seeds_are_those_of_a_new_database() -> None:
    for table, rows in SEEDS.items():
        kinds = model_columns_by_name(table)
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        keys = {
            "agents": ["id"],
            "plugin_settings": ["plugin_id"],
            "plugin_configs": ["plugin_id", "config_key"],
        }[table]
        standing = {
            tuple(row[name] for name in keys): {
                n: normalize_value_for_comparison(v, kinds[n]) for n, v in row.items()
            }
            for row in found
        }
        assert set(standing) == set(rows)
        assert all(is_unchanged_seed_row(table, key, row) for key, row in standing.items())


def of_an_owner(path: Path) -> None:
    """A source whose owner gave the default agent a name and a password, and switched a plugin off."""
    file = database(path)
    file.execute("UPDATE agents SET name = 'Ada', power_password_hash = 'argon2id$x', description = 'Mine'")
    file.execute("UPDATE plugin_settings SET is_active = 0 WHERE plugin_id = 'mind.deepseek'")
    file.execute("UPDATE plugin_configs SET config_value = 'own-model' WHERE plugin_id = 'mind.cerebras'")
    file.commit()
    file.close()


def test_an_owners_rows_take_the_place_of_untouched_seeds(path: Path) -> None:
    of_an_owner(path)
    done = {one.table: one for one in brought(path).outcomes}
    agent = Agent.objects.get(pk="agent.cloto_default")
    assert (agent.name, agent.power_password_hash, agent.description) == ("Ada", "argon2id$x", "Mine")
    assert not PluginSetting.objects.get(pk="mind.deepseek").is_active
    assert PluginConfig.objects.get(plugin_id="mind.cerebras").config_value == "own-model"
    assert [done[name].replaced for name in ("agents", "plugin_settings", "plugin_configs")] == [1, 1, 1]
    assert not any(one.conflicts for one in done.values())
    again = {one.table: one for one in brought(path).outcomes}
    assert [again[name].replaced for name in ("agents", "plugin_settings", "plugin_configs")] == [0, 0, 0]
    assert again["agents"].present == 1


def test_a_seed_that_somebody_touched_here_stays(path: Path) -> None:
    of_an_owner(path)
    Agent.objects.update(name="Ours")
    done = {one.table: one for one in brought(path).outcomes}
    assert Agent.objects.get(pk="agent.cloto_default").name == "Ours"
    assert "name" in done["agents"].conflicts[0]


def test_a_seed_that_nobody_touched_there_does_not_clash_with_ours(path: Path) -> None:
    database(path).close()
    Agent.objects.update(name="Ours")
    done = {one.table: one for one in brought(path).outcomes}
    assert not done["agents"].conflicts
    assert Agent.objects.get(pk="agent.cloto_default").name == "Ours"


@pytest.mark.parametrize("with_policy", [False, True])
def test_no_plugin_may_do_more_without_a_persons_word(path: Path, with_policy: bool) -> None:
    file = database(path)
    wanted = ["NetworkAccess", "ProcessExecution"]
    file.execute(
        "UPDATE plugin_settings SET allowed_permissions = ? WHERE plugin_id = 'mind.deepseek'",
        [json.dumps(wanted)],
    )
    file.commit()
    done = {one.table: one for one in brought(path, with_policy=with_policy).outcomes}["plugin_settings"]
    held = PluginSetting.objects.get(pk="mind.deepseek").allowed_permissions
    assert held == (wanted if with_policy else ["NetworkAccess"])
    assert any("--with-policy" in note for note in done.notes) is not with_policy


@pytest.mark.parametrize("change", ["key", "off", "on"])
def test_masked_events_are_known_again_whatever_masks_them(path: Path, settings: Any, change: str) -> None:
    file = newest(path)
    add(file, "sessions", SESSION)
    add(file, "events", {**EVENT, "error": f"no {SECRETS['github']}"}, EVENT)
    settings.MASK_SECRETS = change != "on"
    brought(path)
    if change == "key":
        settings.SECRET_KEY = "another" * 10
    settings.MASK_SECRETS = change != "off"
    assert numbers(path)["events"] == (0, 2, 0)
    assert Event.objects.count() == 2


def test_two_rows_of_a_source_with_one_key_clash(path: Path) -> None:
    file = newest(path)
    file.executescript("DROP TABLE sessions; CREATE TABLE sessions (session_id, status, created_at)")
    add(file, "sessions", SESSION, {**SESSION, "status": "stopped"}, SESSION)
    for added in (1, 0):
        assert numbers(path)["sessions"] == (added, 2 - added, 1)
    assert Session.objects.get().status == "finished"
