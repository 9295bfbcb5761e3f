"""A pytest plugin that tries faults in forks of one process: it loads the program and makes the database once.

A fork puts the faulty code into the functions that are there, whoever has imported them, and runs the fault's tests.
It serves for faults whose tests start no other program, and pass in a fork without the fault. The names of the faults
stand in MUTANTS_TRIED, and what became of each is written to MUTANTS_OUTCOMES as a line of JSON: the name, pytest's
exit code, the seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import time
import types
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from django.db import connections

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parent.parent.parent


class NoSuchFunction(Exception):
    """A fault lies in code that is run as its module is loaded, or in a function that cannot be found."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Set the session's fixtures up by its first test, then try each fault in a fork."""
    names = json.loads(os.environ["MUTANTS_TRIED"])
    chosen = [mutant for mutant in MUTANTS if mutant.name in names]
    first = session.items[0]
    first.config.hook.pytest_runtest_protocol(item=first, nextitem=first)
    without_fault: dict[tuple[str, ...], int] = {}
    with Path(os.environ["MUTANTS_OUTCOMES"]).open("a") as outcomes:
        for mutant in chosen:
            began = time.monotonic()
            if mutant.tests not in without_fault:
                without_fault[mutant.tests] = _code_in_fork(session, None, mutant.tests)
            if without_fault[mutant.tests] == 0:
                code = _code_in_fork(session, mutant, mutant.tests)
                outcomes.write(json.dumps([mutant.name, code, time.monotonic() - began]) + "\n")
                outcomes.flush()
    os._exit(0)


def _code_in_fork(session: pytest.Session, mutant: Mutant | None, tests: Collection[str]) -> int:
    connections.close_all()
    child = os.fork()
    if child == 0:
        code = 3
        with contextlib.suppress(BaseException):
            if mutant is not None:
                seed(mutant)
            code = _run_tests(session, tests)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_tests(session: pytest.Session, tests: Collection[str]) -> int:
    """Return 1 as soon as one of the tests fails, 0 where none does, 5 where there are none."""
    items = [item for item in session.items if any(_is_of(item.nodeid, test) for test in tests)]
    for number, item in enumerate(items):
        if number == 0:
            session._setupstate.teardown_exact(item)  # what is set up for the first test of all alone
        following = items[min(number + 1, len(items) - 1)]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0 if items else 5


def _is_of(node: str, test: str) -> bool:
    return node == test or node.startswith((f"{test}[", f"{test}::"))


def seed(mutant: Mutant) -> None:
    """Put a fault into the functions of this process. Raises NoSuchFunction."""
    path = ROOT / mutant.file
    text = path.read_text()
    before, after = (
        dict(_functions(compile(source, str(path), "exec", dont_inherit=True)))
        for source in (text, text.replace(mutant.before, mutant.after, 1))
    )
    module = importlib.import_module(mutant.file.removesuffix(".py").replace("/", "."))
    changed = [name for name, code in after.items() if _differs(code, before.get(name))]
    outermost = [
        name for name in changed if not any(name.startswith(f"{other}.<locals>") for other in changed)
    ]
    if not outermost:
        raise NoSuchFunction(mutant.name)
    for name in outermost:
        _function(module, name).__code__ = after[name]


def _functions(code: types.CodeType) -> Iterator[tuple[str, types.CodeType]]:
    """Yield the code of each function in a module by its qualified name, those within functions apart."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            is_function = constant.co_flags & inspect.CO_OPTIMIZED  # no class's body
            if is_function and "<" not in constant.co_qualname.replace("<locals>", ""):
                yield constant.co_qualname, constant
            yield from _functions(constant)


def _differs(code: types.CodeType, other: types.CodeType | None) -> bool:
    """Say whether two functions do something else; their lines may have moved."""
    if other is None or (code.co_code, code.co_names) != (other.co_code, other.co_names):
        return True
    if len(code.co_consts) != len(other.co_consts):
        return True
    return any(
        _differs(one, two)  # a function, a comprehension
        if isinstance(one, types.CodeType) and isinstance(two, types.CodeType)
        else (type(one), one) != (type(two), two)
        for one, two in zip(code.co_consts, other.co_consts, strict=True)
    )


def _function(module: types.ModuleType, name: str) -> types.FunctionType:
    holder: object = module
    found: object = module
    for part in name.split("."):
        holder, found = found, None
        found = vars(holder).get(part)
    while not isinstance(found, types.FunctionType):
        for inner in ("fget", "func", "__func__", "__wrapped__"):
            if (next_one := getattr(found, inner, None)) is not None:
                found = next_one
                break
        else:
            raise NoSuchFunction(name)
    return getattr(found, "__wrapped__", found)
