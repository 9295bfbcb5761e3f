"""Keys that are bound to no agent: for tests of databases that were in use before such keys were refused."""

from __future__ import annotations

from django.utils import timezone

from coordinator.identity.keys import ALLOW, UNBOUND_KEYS
from coordinator.models import InstallationSetting


def accept_unbound_keys() -> None:
    """Let unbound keys of scope `agent` in, as a database does that already had keys."""
    InstallationSetting.objects.update_or_create(
        name=UNBOUND_KEYS,
        defaults={"value": ALLOW, "changed_at": timezone.now(), "changed_by": "system:tests"},
    )
