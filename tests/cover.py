"""`python -m tests.cover FILE…`: choose which tests run on PostgreSQL, by what `pytest -p tests.statements` wrote.

Writes `tests/same_statements.txt`: the tests that send only such statements as others send on PostgreSQL, too. Those
others are chosen so that they cost little: after the tests that run there anyhow (`runs_anyhow`), always the function
that sends most new statements for its processor seconds. Whatever is not in the list runs on PostgreSQL, so a new test
does. Measure all tests of a file or none.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests import engines

# Whose subject is what the database does.
SUBJECTS = re.compile(
    r"tests/(approvals|audit|events|feed|foreign|importing|jobs|live|moving|schema|search|transparency|wire)/"
    r"|claim|lock|race|database"
)
# Words of files elsewhere whose tests send statements at once, or for one engine.
AT_ONCE = re.compile(
    r"threading|ThreadPool|at_once|concurren|Barrier|engine\.locks|deadlock|atomically|postgres"
)
QUOTED = re.compile(r'"[^"]*"(?:\.\*)?')
TABLE = re.compile(r'(?:FROM|JOIN|INTO|UPDATE) "(\w+)"|"(\w+)"\."')
LITERAL = re.compile(r"'[^']*'")
WORD = re.compile(r"\w+|[^\w\s(),.?]+")
# Rows of one table by equal values: any engine does that alike.
PLAIN = re.compile(
    r"SELECT|FROM|WHERE|LIMIT|AS|COUNT|\*|DELETE|INSERT|INTO|VALUES|UPDATE|SET|RETURNING|AND|OR|NOT|IN|IS|NULL|="
)


@dataclass
class Function:
    """A test with all its parameters: the statements it sends, and its processor seconds."""

    name: str
    sent: set[frozenset[str]] = field(default_factory=set)
    seconds: float = 0.01


def main() -> None:
    """Choose, write the list, and print how many seconds it saves."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    functions = read_functions(line for path in parser.parse_args().files for line in path.open())
    left_out = {function.name for function in functions} - {
        function.name for function in choose_functions(functions)
    }
    engines.SAME_STATEMENTS.write_text("".join(f"{line}\n" for line in join_names(left_out, functions)))
    seconds = sum(function.seconds for function in functions)
    spared = sum(function.seconds for function in functions if function.name in left_out)
    print(f"{len(left_out)} of {len(functions)} functions left out: {spared:.0f} of {seconds:.0f} s")


def read_functions(lines: Iterable[str]) -> list[Function]:
    """Return the functions of measured tests, by name."""
    functions: dict[str, Function] = {}
    for line in lines:
        measured = json.loads(line)
        name = measured["test"].partition("[")[0]
        function = functions.setdefault(name, Function(name))
        function.sent.update(filter(None, map(shape, measured["sent"])))
        function.seconds += measured["seconds"]
    return [functions[name] for name in sorted(functions)]


@functools.cache
def shape(statement: str) -> frozenset[str]:
    """Return the tables that a statement names, and its words: clauses, functions, operators, types.

    Which columns it takes of a table, and how many conditions of a kind it has, makes no difference to an engine.
    Nothing is returned for one that is PLAIN.
    """
    tables = {
        table for match in TABLE.findall(statement) for table in match if table and not table.startswith("U?")
    }
    words = set(WORD.findall(LITERAL.sub("", QUOTED.sub("", statement))))
    is_plain = len(tables) == 1 and all(PLAIN.fullmatch(word) for word in words)
    return frozenset() if is_plain else frozenset(tables | words)


def runs_anyhow(name: str) -> bool:
    """Say whether a test runs on PostgreSQL whatever it sends."""
    path = name.partition("::")[0]
    return (
        SUBJECTS.search(path) is not None
        or AT_ONCE.search((engines.TESTS.parent / path).read_text()) is not None
    )


def choose_functions(functions: list[Function]) -> list[Function]:
    """Return functions that together send every statement: first those that run anyhow, then greedily."""
    chosen = [function for function in functions if runs_anyhow(function.name)]
    missing = set().union(*(function.sent for function in functions))
    missing -= set().union(*(function.sent for function in chosen))
    while missing:
        best = max(functions, key=lambda function: len(function.sent & missing) / function.seconds)
        chosen.append(best)
        missing -= best.sent
    return chosen


def join_names(names: set[str], functions: list[Function]) -> list[str]:
    """Return the names, sorted; that of a file in place of all its functions, where all are among them."""
    members: dict[str, set[str]] = defaultdict(set)
    for function in functions:
        members[function.name.partition("::")[0]].add(function.name)
    whole = {path for path, of_path in members.items() if of_path <= names}
    return sorted(whole | {name for name in names if name.partition("::")[0] not in whole})


if __name__ == "__main__":
    main()
