"""The table of seeded faults fits the code: each fault has one place, and tests that exist."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutants.__main__ import ROOT
from tests.mutants.table import MUTANTS, Mutant

pytestmark = pytest.mark.one_engine
ROOMS = {"actions", "policy", "edge", "identity", "mcp", "client"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_changes_one_place_and_has_tests(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()
    assert text.count(mutant.before) == 1, f"{mutant.file} has the code {text.count(mutant.before)} times"
    assert mutant.before != mutant.after
    ast.parse(text.replace(mutant.before, mutant.after))
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert (
            f"def {name.rpartition('::')[2]}(" in (ROOT / path).read_text()
            if name
            else (ROOT / path).exists()
        )


def test_each_room_with_guards_has_faults() -> None:
    assert not [name for name, number in Counter(mutant.name for mutant in MUTANTS).items() if number > 1]
    rooms = Counter(mutant.file.split("/")[1] for mutant in MUTANTS)
    assert rooms.keys() >= ROOMS
    assert len(MUTANTS) >= 60
