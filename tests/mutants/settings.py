"""The tests' settings on a database that stays from one fault's tests to the next: making it takes longer than they."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

if DATABASES["default"]["ENGINE"] == "coordinator.engine.sqlite":
    DATABASES["default"]["TEST"] = {"NAME": os.environ["MUTANTS_DATABASE"]}
