"""Fixtures of tests that fill a database with the demo."""

from __future__ import annotations

import pytest

from coordinator.demo import week


@pytest.fixture
def few_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the demo's sessions, for tests that look at whose the database is."""
    monkeypatch.setattr(week, "SESSIONS_PER_AGENT", 3)
    monkeypatch.setattr(week, "TEAMS", week.TEAMS[:1])
