"""Pieces of words are found: identifiers, paths and code, from three letters on; what is in quotes is exact."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import pytest
from django.core.management import call_command
from django.db import connection

from coordinator.actions import search as indexing
from coordinator.actions.search.indexing import iterate_index_steps
from coordinator.actions.sessions import sessions
from coordinator.engine import full_text
from coordinator.identity.actors import system_actor
from coordinator.models import Session
from coordinator.search import index as search_index
from coordinator.search.events import SearchQuery, search_events, walk_session_index_or_none
from coordinator.search.progress import IndexingProgress, load_indexing_progress
from coordinator.search.text import normalize_search_text
from tests.people import signed_in
from tests.search.indexing import (
    check_index,
    index_new,
    let_ids_begin_anew,
    let_spans_be_seconds,
    pieces_kept,
)
from tests.timelines import BEGAN, add_events, called, make_session, said

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    return make_session()


def found(text: str, **where: str) -> list[int]:
    return [hit.event.pk for hit in search_events(SearchQuery(text, **where)).hits]


CODE = """class TestCheckpointStore(StoreCase):
    def test_save_checkpoint(self, db_path="/srv/app/.env"):
        self.store.save(Checkpoint(step=42), retry_count=3) != None
"""


@pytest.mark.parametrize(
    "typed",
    [
        "TestCheckpoint",
        "checkpointstore",
        "PointSto",
        "int",
        "test_save",
        "save_check",
        "ve_che",
        "store.save",
        "re.sav",
        "self.store.save",
        "srv/app",
        "/srv/app/.env",
        ".env",
        "save(Check",
        "retry_count=3",
        "ry_cou",
        "42",
        "che*",
        '"self.store.save("',
        '"TestCheckpointStore"',
        '"/srv/app/.env"',
        '"!= None"',
        '"!="',
        '"def  test_save_checkpoint"',
        "TestCheckpoint store.save",
    ],
)
def test_what_people_type_finds_the_code(session: Session, typed: str) -> None:
    add_events(session, [said("user", "something else")])
    (row,) = add_events(session, [said("assistant", CODE)])
    add_events(session, [said("user", "nothing of that")])
    index_new()
    assert found(typed) == [row.pk]


@pytest.mark.parametrize(
    "typed",
    [
        "CheckpointTest",
        '"TestCheckpoint"',
        '"store save"',
        '"save checkpoint"',
        '"checkpoint self"',
        "oint*",
        "in",
        ".nv",
        "/pp",
        "save_chk",
        "checkpointx",
        '"!== None"',
    ],
)
def test_what_is_not_there_is_not_found(session: Session, typed: str) -> None:
    add_events(session, [said("assistant", CODE)])
    index_new()
    assert found(typed) == []


def test_the_found_piece_is_marked(session: Session) -> None:
    add_events(session, [said("assistant", "See TestCheckpointStore, Österreich and config.env")])
    index_new()

    def marked(typed: str) -> list[str]:
        (hit,) = search_events(SearchQuery(typed)).hits
        return [piece.text for piece in hit.snippet if piece.found]

    assert marked("checkpoint") == ["Checkpoint"]
    assert marked("osterr") == ["Österr"]
    assert marked("fig.en") == ["fig.en"]
    assert marked('"See TestCheckpointStore,"') == ["See TestCheckpointStore,"]
    body = signed_in("viewer").get("/ui/search/", {"q": "checkpoint"}).content.decode()
    assert "Test<mark>Checkpoint</mark>Store" in body


def test_letters_that_are_several_are_marked_where_they_stand(session: Session) -> None:
    add_events(session, [said("user", "ﬁne \ud55c\uad6d\uc5b4 needles")])
    index_new()
    (hit,) = search_events(SearchQuery("needle")).hits
    assert [piece.text for piece in hit.snippet if piece.found] == ["needle"]


def test_a_long_output_that_was_cut_is_found_by_the_words_after_its_line_ends(session: Session) -> None:
    output = {"stdout": "\n".join(["Checkpoint one"] + ["filler text"] * 2_000)}
    row = add_events(session, called("Bash", {"command": "make"}, output))[-1]
    index_new()
    assert found('"filler"') == [row.pk]
    assert found('"Checkpoint one filler text"') == [row.pk]


def test_a_session_is_searched_by_pieces_too(session: Session) -> None:
    (row,) = add_events(session, [said("assistant", CODE)])
    add_events(make_session("ses_other"), [said("assistant", CODE)])
    index_new()
    walked = walk_session_index_or_none(session.pk, "TestCheckpoint")
    assert walked is not None
    assert walked.ids == [row.pk]


QUESTIONS = [
    "alpha",
    "lph",
    "pha.bet",
    "a.bet",
    "al.be",
    "ha.beta_gam",
    "gamma.alp*",
    "pha gam",
    '"beta" lph',
    "mma",
    "a.al",
    "l.a",
    "a_be gam",
]


def plainly_has(text: str, typed: str) -> bool:
    """Say by the letters alone whether a text has what was typed, three letters or more."""
    if typed.startswith('"'):
        return re.search(rf"(?<![a-z0-9]){typed.strip(chr(34))}(?![a-z0-9])", text) is not None
    start = r"(?<![a-z0-9])" if typed.endswith("*") else ""
    return re.search(start + "[._ ]".join(re.split(r"[._]", typed.rstrip("*"))), text) is not None


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    let_ids_begin_anew()
    monkeypatch.setattr(search_index, "WALK_SECONDS", 0)
    monkeypatch.setattr(search_index, "CHECKED_AT_ONCE", 3)
    monkeypatch.setattr(search_index, "CHECKED_FIRST", 3)
    let_spans_be_seconds(monkeypatch, 4)
    monkeypatch.setattr(full_text, "STRETCHES", {"sqlite": (3, 5), "postgresql": (3, 5)})


@pytest.mark.parametrize(("few", "most"), [(0, 1), (0, 500), (2, 4), (100, 1), (100, 500)])
@pytest.mark.usefixtures("short_steps")
def test_every_way_of_asking_finds_the_same(
    session: Session, monkeypatch: pytest.MonkeyPatch, few: int, most: int
) -> None:
    dice = Random(5)
    stems = ["alpha", "beta", "gamma", "xalpha", "alphax", "betagam", "al", "be", "bet", "mygamma"]
    texts = [
        "".join(dice.choice(stems) + dice.choice([".", "_", " "]) for _ in range(dice.randint(1, 5))) + "end"
        for _ in range(24)
    ]
    rows = add_events(session, [said("user", text) for text in texts])
    index_new()
    monkeypatch.setattr(search_index, "FEW_WORDS", few)
    monkeypatch.setattr(full_text, "MOST_WORDS", {"sqlite": most, "postgresql": most})
    for typed in QUESTIONS:
        wanted = [
            row.pk
            for row, text in zip(rows, texts, strict=True)
            if all(plainly_has(normalize_search_text(text), one) for one in typed.split())
        ]
        assert list(pages_of(typed)) == wanted[::-1], typed


def pages_of(text: str) -> Iterator[int]:
    before = None
    while True:
        page = search_events(SearchQuery(text), before=before, limit=3)
        yield from (hit.event.pk for hit in page.hits)
        before = page.before
        if before is None:
            return


def test_pieces_of_words_that_no_event_has_any_longer_are_forgotten(session: Session) -> None:
    add_events(make_session("ses_other"), [said("user", "shared words")])
    add_events(session, [said("user", "SecretCheckpoint shared")])
    index_new()
    assert pieces_kept() == ["secretcheckpoint", "shared", "words"]
    sessions.remove_session(session.pk, actor=system_actor("tests"), now=BEGAN)
    indexing.unindex_deleted_events()
    assert pieces_kept() == ["shared", "words"]
    assert found("checkpoint") == []
    check_index()


def uncut() -> None:
    """Leave the index as the version before pieces left it."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("INSERT INTO sbx_search_pieces (sbx_search_pieces) VALUES ('delete-all')")
            cursor.execute("DELETE FROM sbx_search_words")
        cursor.execute("UPDATE sbx_search_terms SET cut = false")
        cursor.execute("UPDATE sbx_search_progress SET cut_upto = '', words_cut = 0, words_to_cut = 0")


def test_words_that_an_older_version_kept_are_cut_step_by_step(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.actions.search.indexing.WINDOW", 2)
    (row,) = add_events(session, [said("assistant", "alpha beta gamma TestCheckpointStore")])
    index_new()
    uncut()
    assert found("checkpoint") == []
    assert found("TestCheck") == found("gamma") == [row.pk]
    next(iterate_index_steps())
    assert load_indexing_progress() == IndexingProgress(pieces=50)
    body = signed_in("viewer").get("/ui/search/", {"q": "needle"}).content.decode()
    assert "50 %" in body
    (new,) = add_events(session, [said("assistant", "zeta TestCheckpointStore")])
    for _ in range(3):
        index_new()
    assert load_indexing_progress() == IndexingProgress()
    assert found("checkpoint") == [new.pk, row.pk]
    assert pieces_kept() == ["alpha", "beta", "gamma", "testcheckpointstore", "zeta"]


def test_a_rebuild_finds_the_same_pieces(session: Session) -> None:
    (row,) = add_events(session, [said("assistant", CODE)])
    index_new()
    before = pieces_kept()
    call_command("rebuild_search")
    assert (pieces_kept(), found("TestCheckpoint")) == (before, [row.pk])
    check_index()
