"""An audit log with some entries, and the tools to look at it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.audit import audit, sealing
from coordinator.identity.actors import system_actor
from coordinator.models import AuditCheckpoint, AuditLog
from coordinator.transparency import keys, log_check


@pytest.fixture(autouse=True)
def key_file(tmp_path: Path, settings: Any) -> Path:
    """A key of this test's own, and no places outside."""
    settings.AUDIT_KEY_FILE = tmp_path / "audit_key"
    settings.AUDIT_CHECKPOINTS = []
    return tmp_path / "audit_key"


@pytest.fixture
def write() -> Callable[[int], list[AuditLog]]:
    """A function that writes so many audit rows as our own actions do."""

    def write(number: int) -> list[AuditLog]:
        return [
            audit.record_audit_entry(
                "PERMISSION_REQUEST_APPROVED",
                actor=system_actor("tests"),
                target=f"request-{one}",
                result="allowed",
                reason="Fine — go on.",
                metadata={"command": f"make {one}", "cost": 0.5},
            )
            for one in range(number)
        ]

    return write


def seal(later: timedelta = timedelta()) -> AuditCheckpoint | None:
    return sealing.sign_audit_checkpoint(timezone.now() + later)


def findings(*kept: str, now: datetime | None = None) -> list[str]:
    """Return what a check of the whole log finds, in words."""
    return [
        one.text
        for one in log_check.check_entire_audit_log(
            kept, keys.load_log_verifiers(), now or datetime.now(UTC)
        ).problems
    ]
