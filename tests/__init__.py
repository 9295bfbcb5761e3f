"""The tests of Signalbox. What fixtures assert is explained as a test's own assertions are."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.browser", "tests.served", "tests.standing")
