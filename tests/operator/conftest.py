from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.served import Served, Template, running


@pytest.fixture(scope="session")
def two_workers(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with two workers that logs everything as JSON, for all tests here that leave it as it was."""
    folder = tmp_path_factory.mktemp("operator") / "server"
    logs = {"SIGNALBOX_LOG_FORMAT": "json", "SIGNALBOX_ACCESS_LOG": "all"}
    with running(served_template, folder, **logs, SIGNALBOX_TRUSTED_PROXIES="127.0.0.9") as served:
        yield served
