from __future__ import annotations

import pytest

from tests.runs.fleet import Fleet


@pytest.fixture
def fleet(db: None) -> Fleet:
    return Fleet()
