"""The table of scopes on the help page "API and keys" and the code name the same scopes."""

from __future__ import annotations

import re

from coordinator.identity.scopes import SCOPES
from tests.served import ROOT


def test_the_table_of_keys_names_every_scope_and_no_other() -> None:
    section = (ROOT / ".docs/api.md").read_text().split("\n## Keys\n", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"^\| `([a-z]+)`", section, re.M)) == set(SCOPES)
