"""What a reviewer of Claude Code's transcripts looks for first: an identifier, a path, a piece of code or a command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client

from coordinator.models import Event
from coordinator.search import files
from coordinator.search.events import SearchQuery, search_events
from tests.people import signed_in
from tests.search.indexing import index_new

pytestmark = pytest.mark.django_db

CORPUS = Path(__file__).parents[1] / "data" / "claude_code" / "transcripts"
PRICING = "/home/dev/shop/shop/pricing.py"


@pytest.fixture(autouse=True)
def imported() -> None:
    call_command("import_claude_code", str(CORPUS), "--host", "laptop", verbosity=0)
    index_new()


@pytest.fixture
def reader() -> Client:
    return signed_in("viewer")


def events_with(*texts: str) -> set[int]:
    """Return the events in which one of these stands, read from the rows; a call's end repeats its input."""
    columns = ("tool_input", "tool_output", "content", "error", "reason")
    return {
        row["id"]
        for row in Event.objects.values("id", "event_type", *columns)
        if any(
            text in without_file_before(str(row[column]))
            for text in texts
            for column in columns
            if (row["event_type"], column) != ("post_tool", "tool_input")
        )
    }


def without_file_before(stored: str) -> str:
    """Return an edit's stored result without the file before it, which no page shows: its diff is."""
    return re.sub(r"""(['"])originalFile\1: (['"]).*?(?<!\\)\2, """, "", stored)


@pytest.mark.parametrize(
    ("typed", "stands"),
    [
        # identifiers, whole and in pieces
        ("Decimal", "Decimal"),
        ("ecima", "Decimal"),
        ("invoices", "invoices"),
        # paths, from either end
        (PRICING, PRICING),
        ("shop/pricing.py", "shop/pricing.py"),
        ("dev/shop/sho", "dev/shop/shop"),
        ("receipt.png", "receipt.png"),
        ("pricing.py", "pricing.py"),
        # pieces of code and of commands
        ('"line.price * line.count"', "line.price * line.count"),
        ("line.price", "line.price"),
        ("total = Decimal(0)", "total = Decimal(0)"),
        ('"round(total, 2)"', "round(total, 2)"),
        ('"git push --force"', "git push --force"),
        ("rm -rf .cache", "rm -rf .cache"),
        ("invoices.py:31", "invoices.py:31"),
        ('"String to replace not found"', "String to replace not found"),
    ],
)
def test_what_is_typed_finds_every_event_it_stands_in(typed: str, stands: str, reader: Client) -> None:
    wanted = events_with(stands)
    assert wanted
    assert {hit.event.pk for hit in search_events(SearchQuery(typed)).hits} >= wanted
    answer = reader.get("/ui/search/", {"q": typed})
    assert all(f"#e{pk}" in answer.content.decode() or str(pk) in answer.content.decode() for pk in wanted)


@pytest.mark.parametrize(
    "typed", ['"Decimal(0.0)"', '"git push --force-with-lease"', "pricing.rb", "shop/pricings"]
)
def test_what_stands_nowhere_is_not_found(typed: str) -> None:
    assert search_events(SearchQuery(typed)).hits == []


def test_what_was_done_to_a_file_is_found_by_the_end_of_its_path(reader: Client) -> None:
    found = files.load_calls_touching_files(files.find_touched_files_matching_path("shop/pricing.py")).touches
    assert [(touch.event.tool_name, touch.failed) for touch in found] == [("Edit", False), ("Edit", True)]
    body = reader.get("/ui/search/", {"q": "file:shop/pricing.py"}, follow=True).content.decode()
    assert PRICING in body
    sessions = reader.get("/ui/sessions/", {"file": "pricing.py"}).context["rows"]
    assert [row.session.pk for row in sessions] == [found[0].event.session_id]
