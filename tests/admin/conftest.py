"""Fixtures of tests that open many pages of the admin."""

from __future__ import annotations

import pytest
from django.contrib import admin


@pytest.fixture
def without_sidebar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without the list of all tables, which is a third of the time of each."""
    monkeypatch.setattr(admin.site, "get_app_list", lambda *_, **__: [])
