"""A served program for the tests that knock at the edge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.served import Served, Template, running


@pytest.fixture(scope="module")
def box(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with one worker, whose log tells everything, for all tests of a module."""
    folder = tmp_path_factory.mktemp("box") / "data"
    with running(served_template, folder, workers=1, SIGNALBOX_LOG_LEVEL="DEBUG") as served:
        yield served
