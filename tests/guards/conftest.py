"""A served program for the tests that knock at the edge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.template.backends.django import Template as Page

from tests.served import Served, Template, running


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that say nothing, for tests of who is let in: drawing them is half of the time of a thousand requests."""
    monkeypatch.setattr(Page, "render", lambda self, context=None, request=None: "")


@pytest.fixture(scope="module")
def box(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with one worker, whose log tells everything, for all tests of a module."""
    folder = tmp_path_factory.mktemp("box") / "data"
    with running(served_template, folder, workers=1, SIGNALBOX_LOG_LEVEL="DEBUG") as served:
        yield served
