"""What is defined once is not typed again: sets of statuses, and lists of an event's columns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.db.models import TextChoices

from coordinator.identity.scopes import SCOPES
from coordinator.models.notifications import Notification
from coordinator.models.permissions import RequestStatus
from coordinator.models.sessions import RunStatus, SessionStatus
from coordinator.sessions.events import CONTEXT_FIELDS, EVENT_COLUMNS
from tests.served import ROOT

# The demo tells a story with words of its own; a migration stays as it was.
LEFT_OUT = ("coordinator/demo/", "coordinator/migrations/")


def texts_listed_in(source: str) -> Iterator[tuple[int, set[str]]]:
    """Yield the line and the texts of every list, tuple and set that holds only texts; a type is none of them."""
    tree = ast.parse(source)
    types = {id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple | ast.Set) and node.elts and id(node) not in types:
            texts = {
                one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
            if len(texts) == len(node.elts):
                yield node.lineno, texts


@cache
def lists() -> list[tuple[str, int, set[str]]]:
    """Return the file, the line and the texts of every list in the two packages."""
    paths = [
        path for folder in ("coordinator", "dashboard") for path in sorted(Path(ROOT, folder).rglob("*.py"))
    ]
    return [
        (str(path.relative_to(ROOT)), line, texts)
        for path in paths
        for line, texts in texts_listed_in(path.read_text())
    ]


def listed_again(known: set[str], least: int, *besides: str) -> list[str]:
    """Return where `least` or more of the `known` words, and no others, are listed."""
    return [
        f"{name}:{line}: {sorted(texts)}"
        for name, line, texts in lists()
        if len(texts) >= least and texts <= known and not name.startswith((*LEFT_OUT, *besides))
    ]


@pytest.mark.parametrize("statuses", [SessionStatus, RunStatus, RequestStatus, Notification.State])
def test_no_set_of_statuses_is_typed_twice(statuses: type[TextChoices]) -> None:
    assert listed_again(set(statuses.values), 2) == []


def test_rules_name_sets_of_scopes_rather_than_scopes() -> None:
    """So that a new scope is weighed against all of them in one place (identity/scopes.py)."""
    inline = re.compile(
        rf"""(["']({"|".join(SCOPES)})["'] (not )?in .*\bscopes\b|\bscopes [&|<>=]+ \{{["'])"""
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("coordinator", "dashboard")
        for path in sorted(Path(ROOT, folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if inline.search(line)
    ]
    assert found == []


def test_the_columns_of_an_event_are_listed_once() -> None:
    definition = "coordinator/sessions/events.py"
    assert listed_again({"id", *EVENT_COLUMNS, *CONTEXT_FIELDS}, 6, definition) == []
    assert listed_again({"tool_input", "tool_output", "content"}, 3, definition) == []
