"""Fixtures named for the thing they give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.approvals.conftest import signed_in  # noqa: F401 - a fixture
from tests.approvals.factories import person
from tests.notifications.receivers import Receiver


@pytest.fixture(autouse=True)
def _own_keys(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.WEBHOOK_NETWORKS = ["127.0.0.1"]
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def alice(db: None) -> User:
    return person("alice")
