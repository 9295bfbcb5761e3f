"""One server for the tests that leave it as they found it, but for their own sessions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.live.connections import make_session
from tests.served import Served, Template, running

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with two workers, for all tests of a module."""
    folder = tmp_path_factory.mktemp("shared") / "data"
    with running(served_template, folder, workers=2, SIGNALBOX_RUNNER_POLL_TIMEOUT="3") as served:
        yield served


@pytest.fixture
def session_id(shared: Served) -> str:
    """A running session of the shared server, for this test alone."""
    return new_session(shared)


def new_session(served: Served) -> str:
    """Make a running session with an id of its own."""
    name = f"ses_{next(_numbers):012x}"
    make_session(served, name)
    return name


@pytest.fixture
def sessions(shared: Served) -> Callable[[], str]:
    """A function that makes one more session."""
    return lambda: new_session(shared)
