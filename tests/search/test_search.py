"""What is found, how it is shown, and that the index holds what the events hold."""

from __future__ import annotations

import json
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
from coordinator.search.text import SearchTerm, parse_search_terms, split_into_index_words
from tests.chat.rows import add_agent, add_messages
from tests.people import signed_in
from tests.search.indexing import (
    check_index,
    index_new,
    indexed,
    let_ids_begin_anew,
    let_spans_be_seconds,
)
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
    assert split_into_index_words("src/app.py table_42 Größe naïve") == [
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
    ("address", "used"),
    [
        ("/ui/search/?q=x", 0),
        ("/ui/search/?q=x&tool=Bash&since=2026-11-20", 2),
        ("/ui/files/?path=x&agent=builder", 1),
    ],
)
def test_on_a_phone_all_fields_but_the_words_stand_behind_one_button(address, used):
    response = signed_in("viewer").get(address)
    form = response.content.decode().partition('id="filters"')[2].partition("</form>")[0]
    before_fields, _, fields = form.partition('class="filters-fields"')
    assert before_fields.count("<label") == 1
    assert "<select" not in before_fields
    assert "<select" in fields
    assert response.context["filter_count"] == used
    assert ('<span class="badge">' in before_fields) == bool(used)


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
    assert search.walk_session_index_or_none(session.pk, "needle") == search_index.IndexWalkResult(
        [rows[2].pk]
    )
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
    assert asked("needle") == one <= (23 if connection.vendor == "sqlite" else 35)


def test_results_are_in_the_order_in_which_things_happened(session):
    """An import stores what is years old, and stores it last."""
    new = add_events(session, [said("user", "needle")])
    old = [said("user", "needle", at=BEGAN - timedelta(days=700, seconds=n)) for n in range(3)]
    imported = add_events(make_session("ses_old"), old)
    (odd,) = add_events(make_session("ses_odd"), [said("user", "needle")], context=False)
    (ancient,) = add_events(
        make_session("ses_x"), [said("user", "needle", at=datetime(1969, 1, 1, tzinfo=UTC))]
    )
    (far,) = add_events(make_session("ses_y"), [said("user", "needle", at=datetime(9999, 6, 1, tzinfo=UTC))])
    index_new()
    expected = [row.pk for row in [far, *new, *imported, odd, ancient]]
    for limit in (1, 2, 30):
        assert pages_of("needle", limit=limit) == expected
    assert pages_of("needle", session_id="ses_odd") == [odd.pk]
    assert pages_of("needle", session_id="ses_old", limit=2) == [row.pk for row in imported]


def test_events_of_one_instant_are_all_on_some_page(session):
    rows = add_events(session, [said("user", "needle", at=0) for _ in range(7)])
    index_new()
    assert pages_of("needle") == [row.pk for row in reversed(rows)]


@pytest.mark.parametrize("before", ["1", "x-1", "1-", "9" * 40 + "-1", "-5-1"])
def test_a_place_that_nobody_gave_out_is_no_error(before):
    assert signed_in("viewer").get("/ui/search/", {"q": "x", "before": before}).status_code == 200


def edit_result(before="", **more):
    patch = [{"oldStart": 1, "lines": ["-hay", "+needle in the diff"]}]
    return {"filePath": "a.py", "originalFile": before, "structuredPatch": patch, **more}


def test_all_that_is_shown_of_a_long_output_is_found(session):
    output = "lorem ipsum\n" * 8_000 + "TestCheckpoint"
    _, ended = add_events(session, called("Bash", {"command": "pytest"}, {"stdout": output}))
    index_new()
    assert found("TestCheckpoint") == found("checkpoint") == [ended.pk]
    (hit,) = search_events(SearchQuery("checkpoint")).hits
    assert [piece.text for piece in hit.snippet if piece.found] == ["Checkpoint"]


def test_a_snippet_shows_a_match_far_into_letters_of_other_lengths(session):
    add_events(session, [said("user", "ﬃe\u0301 " * 30_000 + "the golden needle")])
    index_new()
    (hit,) = search_events(SearchQuery("golden")).hits
    assert [piece.text for piece in hit.snippet if piece.found] == ["golden"]


def test_of_an_edit_the_diff_is_found_and_not_the_file_before_it(session):
    _, ended = add_events(session, called("Edit", {"file_path": "a.py"}, edit_result("secretly idempotent")))
    index_new()
    assert found("needle") == [ended.pk]
    assert found("idempotent") == []


@pytest.mark.parametrize("key", ["signature", "data", "thoughtSignature", "whatever"])
def test_signatures_and_encoded_bytes_are_no_words(session, key):
    encoded = "QmFzZTY0/need1e+" * 40
    add_events(
        session, [{"event_type": "message", "role": "user", "content": [{"type": "thinking", key: encoded}]}]
    )
    add_events(session, [said("user", f"data:image/png;base64,{encoded} shown")])
    index_new()
    assert found("need1e") == []
    assert len(found("shown")) == 1


def test_readable_data_is_found_whatever_its_name(session):
    blocks = [{"type": "note", "data": "a needle in plain words " * 20}]
    (row,) = add_events(session, [{"event_type": "message", "role": "user", "content": blocks}])
    index_new()
    assert found("needle") == [row.pk]


def test_what_is_hidden_of_a_value_is_hidden_where_the_value_is_cut_too():
    stored = json.dumps(edit_result("secretly " * 50, signature="c2lnbmVk" * 30, note="shown"))
    for end in range(len(stored) - 1, len(stored) - 40, -1):
        text = search_text.extract_readable_text(stored[:end])
        assert "secretly" not in text
        assert "c2lnbmVk" not in text
    assert "needle in the diff" in text
    cut_within = stored[: stored.index("secretly") + 100]
    assert "secretly" not in search_text.extract_readable_text(cut_within)


@pytest.fixture
def small_budget(monkeypatch):
    monkeypatch.setattr(search_text, "INDEX_CHARACTERS", 100)


def test_what_is_beyond_the_index_is_found_by_searching_deeper(session, small_budget):
    long_rows = add_events(session, [said("user", "needle " + "hay " * 50 + f"beyond {n}") for n in range(5)])
    add_events(session, [said("user", "needle alone, not beyond")])
    index_new()
    assert len(found("needle")) == 6
    assert found("beyond 3") == []
    assert found("beyond 3", is_deep=True) == [long_rows[3].pk]
    assert pages_of("beyond", limit=2, is_deep=True) == [row.pk for row in reversed(long_rows)]
    client = signed_in("viewer")
    page = client.get("/ui/search/", {"q": "needle"}).content.decode()
    assert "5 events have more text than is indexed" in " ".join(page.split())
    assert "?q=needle&amp;deeper=1" in page
    deep = client.get("/ui/search/", {"q": "beyond 3", "deeper": "1"}).content.decode()
    assert deep.count("data-row>") == 1


def test_a_deeper_search_ends_in_time_and_goes_on_from_there(session, small_budget, monkeypatch):
    rows = add_events(session, [said("user", "hay " * 50 + f"beyond {n}") for n in range(5)])
    index_new()
    monkeypatch.setattr(search_index, "DEEP_SECONDS", 0)
    first = search_events(SearchQuery("beyond 0", is_deep=True))
    assert first.hits == []
    assert first.before is not None
    assert pages_of("beyond 0", is_deep=True) == [rows[0].pk]


def test_no_text_is_too_much_for_an_index(session):
    """PostgreSQL refuses more than a megabyte of words, and letters may become eighteen."""
    words = "".join(f" \ufdfa{number}" for number in range(60_000))
    (row,) = add_events(session, [said("user", f"needle {words}")])
    index_new()
    assert found("needle") == [row.pk]
    assert search.count_searched_events_beyond_index(SearchQuery("needle")) == 1


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
    """A reader who waits for one stretch of time, and stretches of a few events each."""
    let_spans_be_seconds(monkeypatch, 2)
    monkeypatch.setattr(search_index, "WALK_SECONDS", 0)
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
        words, length = split_into_index_words(text), len(term.words)
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


def test_a_stretch_of_time_is_asked_for_by_few_words():
    day = 144
    assert search_text.index_lexemes_covering_time_spans(0, 2) == ["sbxspan0", "sbxspan1"]
    assert search_text.index_lexemes_covering_time_spans(day * 365 - 1, day * 365 + 1) == [
        "sbxspan52559",
        "sbxspan52560",
    ]
    # From 23:50 on the last day of 1970 until 0:10 on the second day of 1972.
    covered = search_text.index_lexemes_covering_time_spans(day * 365 - 1, day * (365 * 2 + 1) + 1)
    assert covered == ["sbxtime1971", "sbxtime19720101", "sbxspan52559", f"sbxspan{day * 731}"]
    assert len(search_text.index_lexemes_covering_time_spans(1, search_text.LAST_SPAN + 1)) < 8_400


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
    add_events(other, [said("user", "needle again", at=3_600)])
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
