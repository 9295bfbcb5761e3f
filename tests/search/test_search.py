"""What is found, how it is shown, and that the index holds what the events hold."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from coordinator.actions.search import rebuild_search_index, unindex_deleted_events
from coordinator.chat import search as chat_search
from coordinator.engine import full_text
from coordinator.models import Event, EventContext
from coordinator.search import events as search
from coordinator.search import index as search_index
from coordinator.search import text as search_text
from coordinator.search.events import SearchQuery, search_events
from coordinator.search.text import SearchTerm, parse_search_terms, split_search_words
from tests.chat.rows import add_agent, add_messages
from tests.people import signed_in
from tests.search.indexing import check_index, index_new, indexed, let_ids_begin_anew
from tests.timelines import BEGAN, add_events, called, make_session, said

pytestmark = pytest.mark.django_db


@pytest.fixture
def session():
    return make_session()


def found(text, **where):
    return [hit.event.pk for hit in search_events(SearchQuery(text, **where)).hits]


def test_words_are_found_wherever_they_are(session):
    events = [
        said("user", "Bring the Österreich report"),
        *called("Bash", {"command": "cat src/app.py"}, {"stdout": "ok", "stderr": "broken pipe"}),
    ]
    said_row, begun, ended = add_events(session, events)
    assert index_new() == 3
    assert found("osterreich") == [said_row.pk]
    assert found("REPORT bring") == [said_row.pk]
    assert found("pipe") == [ended.pk]
    assert found("app.py") == [begun.pk]
    assert found("bring pipe") == []


def test_points_of_a_session_are_told_as_its_timeline_tells_them(session):
    add_events(
        session,
        [
            {"event_type": "permission_request", "tool_name": "Bash", "tool_input": {"command": "needle"}},
            {"event_type": "run_completed", "reason": "stopped", "error": "needle"},
            {"event_type": "odd_type", "error": "needle"},
        ],
    )
    index_new()
    page = signed_in("viewer").get("/ui/search/?q=needle").content.decode()
    assert re.findall(r'<span class="strong">\s*(.*?)\s*</span>', page) == [
        "Odd type",
        "Run ended · stopped",
        "Asked for permission: Bash",
    ]


def test_side_by_side_and_beginnings(session):
    one, two = add_events(session, [said("user", "the quick brown fox"), said("user", "the brown quick fox")])
    index_new()
    assert found('"quick brown"') == [one.pk]
    assert found("quick brown") == [two.pk, one.pk]
    assert found("bro*") == [two.pk, one.pk]
    assert found("row*") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        '"',
        "***",
        "AND",
        "NOT x",
        "a:b",
        "x NEAR y",
        "(",
        "body: x",
        "'; --",
        "\\",
        "é" * 300,
        "& | !",
        "<->",
        "-x",
        "%",
    ],
)
def test_no_question_is_an_error(session, text):
    add_events(session, [said("user", "and not near")])
    index_new()
    found(text)


def test_where_to_look(session):
    other = make_session("ses_other", agent_name="builder")
    add_events(session, [said("user", "needle"), *called("Grep", {"pattern": "needle"}, "needle")])
    (elsewhere,) = add_events(other, [said("assistant", "needle", at=BEGAN + timedelta(days=2))])
    index_new()
    assert found("needle", session_id="ses_other") == [elsewhere.pk]
    assert found("needle", agent="builder") == [elsewhere.pk]
    assert len(found("needle", kind="message")) == 2
    assert len(found("needle", tool="Grep")) == 2
    assert found("needle", since=BEGAN + timedelta(days=1)) == [elsewhere.pk]
    assert len(found("needle", until=BEGAN + timedelta(days=1))) == 3


def test_pages_follow_each_other_without_gap(session):
    rows = add_events(session, [said("user", f"needle {n}") for n in range(7)])
    index_new()
    seen, before = [], None
    while True:
        page = search_events(SearchQuery("needle"), before=before, limit=3)
        seen += [hit.event.pk for hit in page.hits]
        before = page.before
        if before is None:
            break
    assert seen == [row.pk for row in reversed(rows)]


def test_a_snippet_shows_why(session):
    add_events(session, [said("user", "x " * 500 + "the golden needle lies here " + "y " * 500)])
    index_new()
    (hit,) = search_events(SearchQuery("needle golden")).hits
    assert [piece.text for piece in hit.snippet if piece.found] == ["golden", "needle"]
    assert hit.snippet[0].text == hit.snippet[-1].text == "…"


def test_indexing_twice_finds_once(session):
    add_events(session, [said("user", "needle")])
    assert (index_new(), index_new()) == (1, 0)
    assert len(found("needle")) == 1


def test_events_that_committed_late_are_indexed_too(session):
    rows = add_events(session, [said("user", f"needle {n}") for n in range(3)])
    late = Event.objects.get(pk=rows[0].pk)
    EventContext.objects.filter(pk=late.pk).delete()
    late.delete()
    index_new()
    late.save(force_insert=True)
    assert index_new() == 1
    assert late.pk in found("needle")


def test_deleted_events_are_not_found(session):
    rows = add_events(session, [said("user", "needle one"), said("user", "needle two")])
    index_new()
    EventContext.objects.filter(pk=rows[0].pk).delete()
    rows[0].delete()
    assert found("needle") == [rows[1].pk]
    assert (unindex_deleted_events(), unindex_deleted_events()) == (1, 0)
    assert found("needle") == [rows[1].pk]
    assert indexed("one") == []
    assert indexed("needle") == [rows[1].pk]
    check_index()


def test_a_rebuild_finds_the_same(session):
    add_events(session, [said("user", "needle"), *called("Bash", {"command": "needle"}, "needle")])
    index_new()
    before = found("needle")
    assert rebuild_search_index() == 3
    assert found("needle") == before
    call_command("rebuild_search")
    assert found("needle") == before


def test_base64_is_not_indexed(session):
    add_events(
        session,
        [{"event_type": "message", "role": "user", "content": [{"type": "image", "data": "needle/" * 99}]}],
    )
    index_new()
    assert found("needle") == []


def test_words_and_terms():
    assert split_search_words("src/app.py table_42 Größe naïve") == [
        "src",
        "app",
        "py",
        "table",
        "42",
        "große",
        "naive",
    ]
    assert parse_search_terms('one "two three" fo* a/b "one" /var "(x" "!=" *') == [
        SearchTerm(("one",), prefix=True, opens=True),
        SearchTerm(("two", "three"), exact="two three"),
        SearchTerm(("fo",), prefix=True),
        SearchTerm(("a", "b")),
        SearchTerm(("one",)),
        SearchTerm(("var",), prefix=True),
        SearchTerm(("x",), exact="(x"),
        SearchTerm((), exact="!="),
    ]


def test_the_page_links_to_the_event(session):
    (row,) = add_events(session, [said("user", "find the <b>needle</b> here")])
    index_new()
    body = signed_in("viewer").get("/ui/search/", {"q": "needle"}).content.decode()
    assert f"{reverse('sessions:detail', args=[session.pk])}?event={row.pk}#event-{row.pk}" in body
    assert "&lt;b&gt;<mark>needle</mark>&lt;/b&gt;" in body


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?q=x&before=y",
        "?q=x&since=when&until=9999-12-31",
        "?q=x&kind=none",
    ],
)
def test_an_odd_query_is_no_error(query):
    assert signed_in("viewer").get(f"/ui/search/{query}").status_code == 200


def test_a_session_is_searched_in_place(session):
    rows = add_events(
        session,
        [
            said("user", "nothing"),
            *called("Bash", {"command": "ls"}, "the needle", use="a"),
            said("user", "end"),
        ],
    )
    index_new()
    assert search.search_session_events(session.pk, "needle") == search_index.IndexWalkResult([rows[2].pk])
    shown = (
        signed_in("viewer")
        .get(reverse("sessions:detail", args=[session.pk]), {"q": "needle"})
        .context["rows"]
    )
    assert [row.row_type for row in shown] == ["call"]


def test_a_page_of_hits_asks_no_query_per_hit(session, monkeypatch):
    monkeypatch.setattr(search_index, "WALK_SECONDS", 60)  # one walk, however busy the machine is
    let_ids_begin_anew()
    client = signed_in("viewer")
    add_events(session, [said("user", "lonely")])
    index_new()

    def asked(words):
        with CaptureQueriesContext(connection) as seen:
            assert client.get("/ui/search/", {"q": words}).status_code == 200
        return len(seen)

    one = asked("lonely")
    add_events(session, [said("user", f"needle {n}") for n in range(29)])
    index_new()
    assert asked("needle") == one <= 22


def pages_of(text, limit=3, **where):
    """Return the ids of all pages, however often the search has to be told to go on."""
    seen, before = [], None
    while True:
        page = search_events(SearchQuery(text, **where), before=before, limit=limit)
        seen += [hit.event.pk for hit in page.hits]
        before = page.before
        if before is None:
            return seen


@pytest.fixture
def impatient(monkeypatch, db):
    """A reader who waits for one stretch of ids, and stretches of a few ids each."""
    let_ids_begin_anew()
    monkeypatch.setattr(search_index, "WALK_SECONDS", 0)
    monkeypatch.setattr(full_text, "NEWEST_ROWS", 4)
    for module in (search_index, search_text):
        monkeypatch.setattr(module, "BLOCK", 5)
    monkeypatch.setattr(full_text, "STRETCHES", {"sqlite": (1, 2), "postgresql": (1, 2)})


def test_a_search_that_ends_early_says_how_far_it_came_and_goes_on_from_there(session, impatient):
    (old,) = add_events(session, [said("user", "needle")])
    add_events(session, [said("user", "hay", at=BEGAN + timedelta(days=1)) for _ in range(40)])
    index_new()
    first = search_events(SearchQuery("needle"))
    assert first.hits == []
    assert first.looked_until == BEGAN + timedelta(days=1)
    assert pages_of("needle") == [old.pk]
    body = signed_in("viewer").get("/ui/search/", {"q": "needle"}).content.decode()
    assert "Search further back" in body


@pytest.mark.parametrize("most", [0, 3, 100])
@pytest.mark.parametrize(
    "question",
    ["iden*", "iden* even", "iden* odd*", "src/iden*", "iden* nothing", "iden* not*", '"x y" iden*'],
)
def test_beginnings_of_many_words_find_what_they_find_word_by_word(
    session, impatient, monkeypatch, most, question
):
    texts = [f"src/ident{n % 7} x y {'even' if n % 2 == 0 else 'odd'}" for n in range(20)]
    texts[3:9] = ["iden", "x identity y", "even", "src identical/x/y", "IDENT\u00c9", "odd x y"]
    rows = add_events(session, [said("user", text) for text in texts])
    index_new()

    def has(text, term):
        words, length = split_search_words(text), len(term.words)
        if term.exact:
            return f" {term.exact} " in f" {text.lower()} "
        return any(
            tuple(words[at : at + length]) == term.words
            or (
                term.prefix
                and tuple(words[at : at + length - 1]) == term.words[:-1]
                and words[at + length - 1 :][:1] != []
                and words[at + length - 1].startswith(term.words[-1])
            )
            or (term.opens and any(word.endswith(term.words[0]) for word in words))
            for at in range(len(words))
        )

    expected = [
        row.pk
        for row, text in reversed(list(zip(rows, texts, strict=True)))
        if all(has(text, term) for term in parse_search_terms(question))
    ]
    monkeypatch.setattr(search_index, "FEW_WORDS", min(most, 2))
    monkeypatch.setattr(full_text, "MOST_WORDS", {"sqlite": most, "postgresql": most})
    monkeypatch.setattr(search_index, "CHECKED_AT_ONCE", 2)
    monkeypatch.setattr(search_index, "CHECKED_FIRST", 2)
    assert pages_of(question) == expected


def test_the_agent_of_many_sessions_is_found_like_that_of_few(session, monkeypatch):
    rows = []
    for number in range(4):
        other = make_session(f"ses_{number}", agent_name="builder" if number % 2 else "weaver")
        rows += add_events(other, [said("user", "needle")])
    index_new()
    expected = [rows[3].pk, rows[1].pk]
    assert found("needle", agent="builder") == expected
    monkeypatch.setattr(search, "MOST_SESSIONS", 1)
    assert found("needle", agent="builder") == expected
    assert found("needle", agent="nobody") == []


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("2026-02-23", "2026-02-24", ["sbxtime20260223", "sbxtime20260224"]),
        (
            "2026-01-30",
            "2026-03-01",
            ["sbxtime20260130", "sbxtime20260131", "sbxtime202602", "sbxtime20260301"],
        ),
        ("2023-12-31", "2025-01-01", ["sbxtime20231231", "sbxtime2024", "sbxtime20250101"]),
    ],
)
def test_a_stretch_of_time_is_years_months_and_days(since, until, expected):
    moments = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (since, until))
    assert list(search_text.cover_period_with_spans(*moments)) == expected


def test_no_stretch_of_time_is_too_long_to_ask_for():
    assert len(search_text.cover_period_with_spans(BEGAN, None)) < 120
    assert len(search_text.cover_period_with_spans(None, BEGAN)) < 120


def test_the_command_rebuilds_the_chats_words_too():
    add_agent()
    add_messages(2)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sbx_chat_search")
    assert chat_search.find_chat_messages("number") == []
    call_command("rebuild_search")
    assert len(chat_search.find_chat_messages("number")) == 2


@pytest.mark.parametrize(
    ("typed", "count"),
    [
        ("numb", 2),
        ("umber", 0),
        ('"number 1"', 1),
        ('"number, 1"', 0),
        ('"!="', 0),
        ('number "!="', 0),
        ("***", 0),
    ],
)
def test_chats_are_searched_by_beginnings_and_exactly(typed, count):
    add_agent()
    add_messages(2)
    call_command("rebuild_search")
    assert len(chat_search.find_chat_messages(typed)) == count


def test_hits_stand_by_session_with_how_much_there_is_in_each(session):
    let_ids_begin_anew()
    other = make_session("ses_other")
    add_events(other, [said("user", "needle")])
    add_events(session, [said("user", f"needle {n}") for n in range(search.PAGE + 5)])
    add_events(other, [said("user", "needle again")])
    index_new()
    page = signed_in("viewer").get("/ui/search/", {"q": "needle"})
    groups = [(group.session.pk, len(group.hits), group.count_label) for group in page.context["groups"]]
    assert groups == [
        ("ses_other", 1, "2 results"),
        (session.pk, search.PAGE - 1, f"{search.PAGE + 5} results"),
    ]
    assert f"?q=needle&amp;session={session.pk}" in page.content.decode()


def test_counting_ends_in_time_and_says_that_there_may_be_more(session, monkeypatch):
    let_ids_begin_anew()
    add_events(session, [said("user", f"needle {n}") for n in range(search.PAGE + 5)])
    index_new()
    monkeypatch.setattr(search, "COUNT_SECONDS", -1)
    (group,) = signed_in("viewer").get("/ui/search/", {"q": "needle"}).context["groups"]
    assert (group.count_label, group.has_more) == (f"{search.PAGE}+ results", True)
    monkeypatch.setattr(search, "COUNT_SECONDS", 60)
    monkeypatch.setattr(search, "MOST_COUNTED", 10)
    monkeypatch.setattr(search_index, "WALK_SECONDS", 60)
    (group,) = signed_in("approver").get("/ui/search/", {"q": "needle"}).context["groups"]
    assert (group.count_label, group.has_more) == ("10+ results", True)


def test_what_a_call_was_given_is_shown_as_code_with_its_lines(session):
    let_ids_begin_anew()
    text = "def one():\n    return 1\n\n\n\ndef needle():\n\treturn 2\n"
    add_events(session, [*called("Write", {"content": text}), said("user", "a needle\n\n  here")])
    index_new()
    page = signed_in("viewer").get("/ui/search/", {"q": "needle"})
    (group,) = page.context["groups"]
    shown = {hit.is_code: "".join(piece.text for piece in hit.snippet) for hit in group.hits}
    assert shown[True].startswith("def one():\n    return 1\ndef needle():\n\treturn 2")
    assert shown[False] == "a needle here"
    assert page.content.decode().count("hit-code") == sum(hit.is_code for hit in group.hits)
