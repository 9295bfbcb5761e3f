"""The lists of tests that one engine is enough for name tests, and `tests.cover` leaves out no sender of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import cover, engines

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.one_engine


def test_each_name_is_that_of_a_test() -> None:
    names = [*(f"tests/{name}" for name in engines.OTHER_SUBJECTS), *sorted(engines.read_same_statements())]
    assert [name for name in names if not is_name_of_tests(name)] == []


def is_name_of_tests(name: str) -> bool:
    path, _, test = name.partition("::")
    if not (ROOT / path).exists():
        return False
    return f"def {test.rpartition('::')[2]}" in (ROOT / path).read_text() if test else True


def lines(*measured: tuple[str, float, str]) -> list[str]:
    return [
        json.dumps({"test": test, "seconds": seconds, "sent": [sent]}) for test, seconds, sent in measured
    ]


def test_of_two_that_send_the_same_statement_the_cheaper_one_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cover, "runs_anyhow", lambda name: False)
    joined = 'SELECT "a"."x" FROM "a" INNER JOIN "b" ON ("a"."x" = "b"."x")'
    functions = cover.read_functions(
        lines(
            ("tests/a.py::test_slow[1]", 2.0, joined),
            ("tests/a.py::test_slow[2]", 2.0, joined),
            ("tests/a.py::test_quick", 1.0, joined.replace('"x"', '"y"')),  # a column makes no difference
            ("tests/b.py::test_sum", 9.0, 'SELECT SUM("a"."x") FROM "a"'),
            ("tests/c.py::test_plain", 0.1, 'SELECT "a"."x" FROM "a" WHERE "a"."x" = ?'),
        )
    )
    assert {function.name for function in cover.choose_functions(functions)} == {
        "tests/a.py::test_quick",
        "tests/b.py::test_sum",
    }
    left_out = {"tests/a.py::test_slow", "tests/c.py::test_plain"}
    assert cover.join_names(left_out, functions) == ["tests/a.py::test_slow", "tests/c.py"]


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("tests/schema/test_fields.py::test_x", True),
        ("tests/runs/test_races.py::test_x", True),  # it writes at once
        ("tests/usage/test_page.py::test_x", False),
    ],
)
def test_what_the_database_does_is_tested_on_both(name: str, runs: bool) -> None:
    assert cover.runs_anyhow(name) is runs
