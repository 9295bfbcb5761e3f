"""The tests of Signalbox. What fixtures assert is explained as a test's own assertions are."""

from __future__ import annotations

import contextlib

with contextlib.suppress(ModuleNotFoundError):  # the load kit is here too, and needs nothing but Python
    import pytest

    pytest.register_assert_rewrite("tests.browser", "tests.served", "tests.standing")
