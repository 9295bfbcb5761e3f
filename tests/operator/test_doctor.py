"""`manage.py doctor` says of each thing how it is and what to do, and exits 1 if anything is broken."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.feed import triggers
from coordinator.identity.actors import system_actor
from coordinator.models import AuditLog, Job
from coordinator.operations.doctor import CheckLevel, CheckResult, database, everything, machine, upkeep
from coordinator.operations.doctor import settings as fitting
from tests.served import ROOT, Served, free_port

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_is_served_here(settings) -> None:
    settings.BIND = f"127.0.0.1:{free_port()}"


def named(name: str) -> CheckResult:
    """Return the check of that name, of all there are."""
    from django.conf import settings

    return next(
        c
        for c in everything.iterate_all_doctor_checks(f"http://{settings.BIND}", timezone.now())
        if c.name == name
    )


def test_a_sound_database_fails_nothing_and_each_thing_is_told_once() -> None:
    out = io.StringIO()
    call_command("doctor", "--json", stdout=out)
    told = json.loads(out.getvalue())
    assert [one["name"] for one in told if one["level"] == "fail"] == []
    for name in (
        "database",
        "disk",
        "integrity",
        "migrations",
        "triggers",
        "clock",
        "feed",
        "keys",
        "search",
    ):
        assert [one["level"] for one in told if one["name"] == name] == ["ok"], told
    assert AuditLog.objects.filter(event_type="DOCTOR_RAN").count() == 1


def test_a_trigger_that_was_dropped_fails_the_command() -> None:
    stood = sorted(triggers.load_current_trigger_fingerprints(connection))
    with connection.cursor() as cursor:
        on = " ON sessions" if connection.vendor == "postgresql" else ""
        cursor.execute(f"DROP TRIGGER sbx_feed_sessions_insert{on}")
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("doctor", stdout=out)
    assert ended.value.code == 1
    [line] = [line for line in out.getvalue().splitlines() if line.startswith("fail")]
    assert "sbx_feed_sessions_insert" in line
    assert "signalbox manage migrate" in line
    call_command("migrate", verbosity=0)
    assert sorted(triggers.load_current_trigger_fingerprints(connection)) == stood
    assert named("triggers").level is CheckLevel.OK


def test_a_system_that_cannot_keep_decoders_from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named("sandbox").level is CheckLevel.OK
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert named("sandbox").level is CheckLevel.WARN


def test_a_migration_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = database.startup.migrations_on_disk() | {("coordinator", "9999_later")}
    monkeypatch.setattr(database.startup, "migrations_on_disk", lambda: known)
    found = list(everything.iterate_all_doctor_checks("http://127.0.0.1:9", timezone.now()))
    assert [c.name for c in found if c.level is CheckLevel.FAIL] == ["migrations"]
    assert not any(check.name == "keys" for check in found)  # it might ask for a column that is not there yet


def test_keys_about_to_expire_are_named() -> None:
    now = timezone.now()
    for name, days in (("soon", 3), ("late", 300)):
        keys.issue_api_key(
            name=name,
            scopes=["read"],
            actor=system_actor("test"),
            now=now,
            expires_at=now + timedelta(days=days),
        )
    found = named("keys")
    assert (found.level, "soon (in 2d)" in found.message, "late" in found.message) == (
        CheckLevel.WARN,
        True,
        False,
    )


def test_jobs_that_are_not_done() -> None:
    now = timezone.now()

    def named(*, served: bool = True) -> CheckResult:
        return {check.name: check for check in upkeep.iterate_upkeep_checks(now, served=served)}["jobs"]

    def job(name: str, minutes: int, **columns: Any) -> None:
        Job.objects.create(
            name=name, next_at=now - timedelta(minutes=minutes), chosen_at=now - timedelta(days=1), **columns
        )

    job("lifecycle", 1)
    job("prune", 20, leased_by="x:1", leased_until=now + timedelta(seconds=20))  # somebody is at it
    assert named().level is CheckLevel.OK
    job("audit:seal", -1, attempts=3, error="The key cannot be read.")
    assert (named().level, named().message) == (
        CheckLevel.WARN,
        "Jobs fail: audit:seal: The key cannot be read.",
    )
    job("feed:prune", 20)
    assert (named().level, named().message) == (CheckLevel.FAIL, "Overdue: feed:prune.")
    assert named(served=False).level is CheckLevel.OK


def test_who_may_look_into_the_data_folder(tmp_path: Path, settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DATA_DIR = tmp_path
    (tmp_path / "secret_key").write_text("x")

    def permissions() -> CheckResult:
        return list(machine.check_data_folder_and_isolation(0))[1]

    for folder, key, level in (
        (0o755, 0o600, CheckLevel.WARN),
        (0o700, 0o644, CheckLevel.FAIL),
        (0o700, 0o600, CheckLevel.OK),
    ):
        tmp_path.chmod(folder)
        (tmp_path / "secret_key").chmod(key)
        assert permissions().level is level


def test_a_disk_that_is_nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def disk(free: int, database: int = 0) -> CheckLevel:
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: shutil_usage(10**12, 10**12 - free, free))
        return next(iter(machine.check_data_folder_and_isolation(database))).level

    shutil_usage = machine.shutil._ntuple_diskusage  # type: ignore[attr-defined]
    assert disk(10**8) is CheckLevel.FAIL
    assert disk(10**9) is CheckLevel.WARN
    assert disk(10**10) is CheckLevel.OK
    assert disk(10**10, database=10**11) is CheckLevel.WARN


def test_https_without_a_trusted_proxy_is_told_with_its_remedy(settings) -> None:
    settings.HTTPS, settings.TRUSTED_PROXIES = True, []
    [found] = [
        check for check in fitting.iterate_conflicting_settings_checks() if check.level is CheckLevel.FAIL
    ]
    assert "redirects to itself" in found.message
    assert "SIGNALBOX_TRUSTED_PROXIES" in found.remedy
    settings.TRUSTED_PROXIES = ["127.0.0.1"]
    assert not [
        check for check in fitting.iterate_conflicting_settings_checks() if check.level is CheckLevel.FAIL
    ]


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    elsewhere = {
        "DATABASE_URL": f"sqlite:///{tmp_path}/no/folder.sqlite3",
        "SIGNALBOX_DATA_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "doctor"],
        cwd=ROOT,
        env=os.environ | elsewhere | {"DJANGO_SETTINGS_MODULE": "coordinator.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1].startswith("fail  database:")
    assert not done.stderr


@pytest.mark.served
def test_the_served_program_is_asked_and_a_misfit_told_at_its_start(serve: Callable[..., Served]) -> None:
    served = serve(workers=1, SIGNALBOX_PUBLIC_URL="https://box.example")
    assert "SIGNALBOX_TRUSTED_PROXIES" in served.output()
    done = subprocess.run(
        [sys.executable, "manage.py", "doctor", "--json"],
        cwd=ROOT,
        env=served.env,
        capture_output=True,
        text=True,
        check=False,
    )
    told = {one["name"]: one["level"] for one in json.loads(done.stdout) if one["name"] != "settings"}
    assert done.returncode == 1  # for the settings
    for name in ("server", "writer", "streams", "jobs", "feed", "people"):
        assert told[name] == "ok", done.stdout
