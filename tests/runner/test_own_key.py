"""`manage.py runner` makes itself a key, once, that only its user can read."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.identity.actors import system_actor
from coordinator.management.commands import runner
from coordinator.models import ApiKey, AuditLog

pytestmark = pytest.mark.django_db


def test_the_key_is_made_once_and_again_when_it_was_revoked(tmp_path: Path, settings: Any) -> None:
    settings.DATA_DIR = tmp_path
    now = timezone.now()
    path = runner.get_or_create_runner_key_file(now)
    first = path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.authenticate_api_key(first, now).scopes == {"runner"}
    assert runner.get_or_create_runner_key_file(now).read_text().strip() == first
    keys.invalidate_api_key(ApiKey.objects.get().id, actor=system_actor("command-line"), now=now)
    second = runner.get_or_create_runner_key_file(now).read_text().strip()
    assert keys.authenticate_api_key(second, now).scopes == {"runner"}
    assert first != second
    made = AuditLog.objects.filter(event_type="API_KEY_CREATED").values_list("actor_id", flat=True)
    assert set(made) == {"system:command-line"}


def test_the_server_is_asked_on_this_machine(settings: Any) -> None:
    settings.BIND_HOST, settings.BIND_PORT = "0.0.0.0", 9000
    assert runner.local_server_url() == "http://127.0.0.1:9000"
    settings.BIND_HOST = "::1"
    assert runner.local_server_url() == "http://[::1]:9000"
