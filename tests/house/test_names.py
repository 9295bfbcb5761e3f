"""Names follow the glossary (.docs/develop/glossary.md), as far as a machine can tell."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.served import ROOT

PREDICATE = re.compile(r"_?(is|has|can|should)_")
PARTICIPLE = re.compile(
    r"_?([a-z]{3,}ed|asked|begun|chosen|drawn|found|given|gone|heard|held|kept|known|left|made|said|seen|sent"
    r"|shown|standing|taken|told|written)"
)
# Words that the glossary replaces, as parts of the name of a function, a class or a module.
REPLACED = {
    *(
        "anew",
        "asked",
        "bell",
        "beside",
        "door",
        "hear",
        "heard",
        "house",
        "kept",
        "left",
        "leftover",
        "look",
    ),
    *("odd", "pulse", "room", "said", "stray", "tallies", "tally", "told", "waking", "whoever"),
}
# Words that the glossary replaces, as the whole name of an argument or a variable.
SAYS_NOTHING = {
    *(
        "anew",
        "asked",
        "beside",
        "came",
        "fault",
        "found",
        "given",
        "gone",
        "heard",
        "held",
        "kept",
        "known",
        "look",
    ),
    *(
        "made",
        "meant",
        "mine",
        "one",
        "ours",
        "room",
        "said",
        "seen",
        "shown",
        "taken",
        "tally",
        "theirs",
        "told",
    ),
    "wanted",
}
# Template tags and filters, and what a template's paginator is asked for by name.
NAMED_BY_OTHERS = {"capped", "coloured", "elapsed"}
# One name for two classes: a model and the program or the part of Django that it stands for.
SHARED = {"Command", "DatabaseWrapper", "Media", "Meta", "Migration", "Runner"}
LEAST_OF_TWO_WORDS, LEAST_UNIQUE, MOST_PRIVATE = 0.7, 0.6, 0.2

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def definitions() -> list[tuple[str, Function | ast.ClassDef]]:
    """Return every function and class of the two packages, each with its file."""
    return [
        (str(path.relative_to(ROOT)), node)
        for folder in ("coordinator", "dashboard")
        for path in sorted(Path(ROOT, folder).rglob("*.py"))
        if "migrations" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function | ast.ClassDef)
    ]


def split_name(name: str) -> list[str]:
    """Return the words of a name, lower case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip("_")).lower().split("_")


def functions() -> Iterator[tuple[str, Function]]:
    for path, node in definitions():
        if isinstance(node, Function) and not node.name.startswith("__"):
            yield path, node


def test_no_function_is_named_by_a_bare_participle() -> None:
    found = [
        f"{path}:{node.lineno}: {node.name}"
        for path, node in functions()
        if PARTICIPLE.fullmatch(node.name) and node.name not in NAMED_BY_OTHERS
    ]
    assert found == []


def test_a_predicate_returns_something() -> None:
    found = [
        f"{path}:{node.lineno}: {node.name}"
        for path, node in functions()
        if PREDICATE.match(node.name)
        and (node.returns is None or (isinstance(node.returns, ast.Constant) and node.returns.value is None))
    ]
    assert found == []


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path, node in definitions():
        if isinstance(node, ast.ClassDef) and node.name not in SHARED:
            places[node.name].append(f"{path}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("word", sorted(REPLACED))
def test_no_name_has_a_word_that_the_glossary_replaces(word: str) -> None:
    found = [
        f"{path}:{node.lineno}: {node.name}" for path, node in definitions() if word in split_name(node.name)
    ]
    found += [
        path for path in sorted({path for path, _ in definitions()}) if word in Path(path).stem.split("_")
    ]
    assert found == []


def test_most_names_have_two_words_are_unique_and_public() -> None:
    names = [node.name for _, node in functions()]
    assert sum("_" in name.strip("_") for name in names) / len(names) >= LEAST_OF_TWO_WORDS
    assert len(set(names)) / len(names) >= LEAST_UNIQUE
    assert sum(name.startswith("_") for name in names) / len(names) <= MOST_PRIVATE


def named_in(node: Function) -> set[str]:
    """Return the names of a function's arguments and variables."""
    arguments = node.args
    named = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    named |= {argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument}
    short = {
        id(name)
        for inner in ast.walk(node)
        if isinstance(inner, ast.comprehension)
        for name in ast.walk(inner.target)
    }
    return named | {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) and id(inner) not in short
    }


def test_arguments_and_variables_are_named_by_what_they_hold() -> None:
    """One line of a comprehension may be shorter."""
    found = [
        f"{path}:{node.lineno}: {node.name}: {name}"
        for path, node in functions()
        for name in named_in(node)
        if name.strip("_") in SAYS_NOTHING
    ]
    assert found == []
