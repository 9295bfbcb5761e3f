"""The form of one's own prices: what it refuses, and that no administrator takes back what another one set."""

from __future__ import annotations

import re

import pytest

from coordinator.models import AuditLog, ModelPrice
from tests.people import signed_in

pytestmark = pytest.mark.django_db
ADDRESS = "/ui/costs/prices/"
KINDS = ("input", "output", "cache_read", "cache_write")


def form(version: str, *models: str) -> dict[str, str]:
    fields = {"form-TOTAL_FORMS": str(len(models)), "form-INITIAL_FORMS": "0", "version": version}
    for number, model in enumerate(models):
        fields |= {f"form-{number}-{name}": "3" for name in KINDS} | {f"form-{number}-model": model}
    return fields


def read_version(page: str) -> str:
    """Return the version that the form of the page sends along."""
    (version,) = re.findall(r'name="version" value="([^"]*)"', page)
    return str(version)


def saved_models() -> list[str]:
    return list(ModelPrice.objects.order_by("model").values_list("model", flat=True))


def test_prices_that_another_administrator_saved_meanwhile_are_kept() -> None:
    anna = signed_in("admin")
    seen = read_version(anna.get("/ui/costs/").content.decode())
    assert anna.post(ADDRESS, form(seen, "theirs")).status_code == 302
    for stale in (seen, ""):
        refused = anna.post(ADDRESS, form(stale, "mine"))
        assert refused.status_code == 409
        shown = refused.content.decode()
        assert "The list of prices was changed by somebody else since you loaded the page." in shown
        assert 'value="mine"' in shown  # what was typed
        assert read_version(shown) == stale
        assert saved_models() == ["theirs"]
    seen = read_version(anna.get("/ui/costs/").content.decode())
    assert anna.post(ADDRESS, form(seen, "theirs", "mine")).status_code == 302
    assert saved_models() == ["mine", "theirs"]
    assert AuditLog.objects.filter(event_type="MODEL_PRICES_SAVED").count() == 2


def test_a_refused_form_keeps_the_version_that_was_seen() -> None:
    refused = signed_in("admin").post(ADDRESS, form("seen", ""))
    assert refused.status_code == 422  # a price of no model
    assert read_version(refused.content.decode()) == "seen"
