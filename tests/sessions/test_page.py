"""A session's page: what a signed-in person reads, and what it never does with an agent's words."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser

import pytest
from django.urls import reverse

from coordinator.models import Change
from tests.timelines import add_events, began, called, ended, make_session, said

pytestmark = pytest.mark.django_db
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def session():
    return make_session()


def page(client, session, query="", **headers):
    return client.get(reverse("sessions:detail", args=[session.pk]) + query, headers=headers)


def test_nobody_reads_without_signing_in(client, session):
    assert page(client, session).status_code == 302


def test_an_unknown_session_is_404(viewer):
    assert viewer.get("/ui/sessions/ses_nowhere/").status_code == 404


def test_messages_and_calls_are_on_the_page(viewer, session):
    add_events(
        session,
        [said("user", "Please **fix** it"), *called("Bash", {"command": "make"}, {"stdout": "built ok"})],
    )
    text = page(viewer, session).content.decode()
    assert "<strong>fix</strong>" in text
    assert "make" in text
    assert "built ok" in text


@pytest.mark.parametrize(
    "name", ["a/b", "new", "../up", "?q=1#x", "rows/new", "-/new", "Ünïcode id", "a%2Fb"]
)
def test_any_id_that_a_client_chose_has_a_page(viewer, name):
    session = make_session(name)
    assert page(viewer, session).status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "[x](javascript:alert(1))",
        "<img src=x onerror=alert(1)>",
        "<p style='color:red'>x</p>",
        "![x](http://spy.example/x.png)",
        '<a href="data:text/html,x">x</a>',
    ],
)
def test_an_agents_words_stay_words(viewer, session, text):
    add_events(
        session,
        [
            said("assistant", text),
            *called("Bash", {"command": text}, text),
            *called("Odd", {text: text}, [text], error=text),
        ],
    )
    tags = Tags()
    tags.feed(page(viewer, session, **{"HX-Request": "true"}).content.decode())
    assert tags.seen
    for tag, attributes in tags.seen:
        assert tag not in {"script", "iframe", "object", "form"}
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
        assert attributes.get("href", "/").startswith(("/", "?", "http"))
        assert attributes.get("src", "/").startswith("/")


class Tags(HTMLParser):
    """Collects the tags and attributes that a browser would see."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))


ODD_FIELDS = (
    {"tool_input": ["no", "object"]},
    {"tool_input": "text"},
    {"tool_output": 7},
    {"tool_output": True},
    {"tool_input": {"command": 3}},
    {"tool_input": {"todos": [1]}},
    {"tool_input": {"file_path": None, "edits": [None]}},
    {"tool_output": {"content": [None, 3]}},
    {"tool_input": {"questions": "?"}},
    {"tool_output": {"filenames": 3}},
    {"tool_output": [[["deep"]]]},
)


@pytest.mark.parametrize(
    "tool",
    [
        "Bash",
        "Read",
        "Write",
        "Edit",
        "Grep",
        "TodoWrite",
        "WebFetch",
        "WebSearch",
        "Task",
        "AskUserQuestion",
        "apply_patch",
        "mcp__a__b",
        "mcp__",
        "",
        None,
    ],
)
def test_no_shape_of_a_call_breaks_the_page(viewer, session, tool):
    sound = {"file_path": "/a", "pattern": "x", "url": "u", "query": "q", "prompt": "p"}
    rows = add_events(
        session,
        [
            {"event_type": kind, "tool_name": tool, "tool_use_id": str(use), "tool_input": sound, **fields}
            for use, fields in enumerate(ODD_FIELDS)
            for kind in ("pre_tool", "post_tool")
        ],
    )
    answer = page(viewer, session)
    assert answer.status_code == 200
    shown = answer.content.decode()
    assert [row.pk for row in rows[::2] if f'id="event-{row.pk}"' not in shown] == []


def test_no_shape_of_a_message_breaks_the_page(viewer, session):
    contents = [
        "text",
        5,
        [],
        {},
        [None],
        ["plain"],
        [{"type": "text"}],
        [{"type": "text", "text": None}],
        [{"type": "thinking", "thinking": "hm"}],
        [{"type": "tool_use", "name": "x", "input": {}}],
        [{"type": "new_kind", "x": 1}],
        [{"type": "image", "source": {"type": "url"}}],
    ]
    rows = add_events(
        session,
        [{"event_type": "message", "role": "assistant", "content": content} for content in contents],
    )
    answer = page(viewer, session)
    assert answer.status_code == 200
    shown = answer.content.decode()
    assert [row.pk for row in rows if f'id="event-{row.pk}"' not in shown] == []


def test_a_picture_is_linked_never_embedded(viewer, session):
    data = base64.b64encode(PIXEL).decode()
    (row,) = add_events(
        session,
        [
            {
                "event_type": "message",
                "role": "user",
                "content": [{"type": "image", "data": data, "mimeType": "image/png"}],
            }
        ],
    )
    body = page(viewer, session).content.decode()
    assert data not in body
    url = reverse("sessions:image", args=[session.pk, row.pk, "content", 0])
    assert url in body
    answer = viewer.get(url)
    assert (answer.content, answer["Content-Type"]) == (PIXEL, "image/png")


def test_what_only_claims_to_be_a_picture_is_refused(viewer, session):
    data = base64.b64encode(b"<svg onload=alert(1)>").decode()
    (row,) = add_events(
        session,
        [
            {
                "event_type": "message",
                "content": [{"type": "image", "data": data, "mimeType": "image/svg+xml"}],
            }
        ],
    )
    assert viewer.get(reverse("sessions:image", args=[session.pk, row.pk, "content", 0])).status_code == 404


def test_a_permalink_opens_the_window_of_its_event(viewer, session):
    rows = add_events(session, [said("user", f"message {n}") for n in range(400)])
    body = page(viewer, session, f"?event={rows[250].pk}").content.decode()
    assert f'id="event-{rows[250].pk}"' in body
    assert f'id="event-{rows[0].pk}"' not in body


def test_a_link_to_a_result_opens_its_call_however_far_it_is(viewer, session):
    start, end = called("Bash", {"command": "make"}, "built", use="a")
    rows = add_events(session, [start, *[said("assistant", str(n)) for n in range(300)], end])
    body = page(viewer, session, f"?event={rows[-1].pk}").content.decode()
    assert f'id="event-{rows[0].pk}"' in body
    assert f'id="event-{rows[-1].pk}"' in body


def test_a_page_never_holds_more_than_two_hundred_rows(viewer, session):
    add_events(session, [said("user", str(n)) for n in range(500)])
    assert page(viewer, session).content.decode().count("data-place=") <= 200


def test_earlier_and_later_are_real_links(viewer, session):
    add_events(session, [said("user", f"message {n}") for n in range(250)])
    body = page(viewer, session).content.decode()
    later = body.split('id="newer" href="')[1].split('"')[0]
    assert "message 150" in page(viewer, session, later).content.decode()


def test_a_long_output_is_shortened_and_shown_whole_on_demand(viewer, session):
    end = add_events(
        session, called("Bash", {"command": "seq 1000"}, "\n".join(f"line {n}" for n in range(1000)))
    )[1]
    body = page(viewer, session).content.decode()
    assert "line 999" not in body
    url = reverse("sessions:value", args=[session.pk, end.pk, "tool_output"])
    assert url in body
    assert "line 999" in viewer.get(url).content.decode()
    fragment = viewer.get(url, headers={"HX-Request": "true"}).content.decode()
    assert "line 999" in fragment
    assert "<html" not in fragment


def test_raw_json_holds_every_column_and_the_context(viewer, session):
    (row,) = add_events(session, [began("Bash", {"command": "ls"}, tool_use_id="t1")])
    data = json.loads(viewer.get(reverse("sessions:event", args=[session.pk, row.pk])).content)
    assert data["tool_input"] == {"command": "ls"}
    assert data["context"]["tool_use_id"] == "t1"


def test_an_event_is_not_read_through_another_session(viewer, session):
    (row,) = add_events(make_session("ses_other"), [began("Bash", {"command": "ls"})])
    assert viewer.get(reverse("sessions:event", args=[session.pk, row.pk])).status_code == 404
    assert viewer.get(reverse("sessions:value", args=[session.pk, row.pk, "tool_input"])).status_code == 404


def test_news_are_what_came_since(viewer, session):
    session.status = "running"
    session.save()
    start = add_events(session, [began("Bash", {"command": "x"}, tool_use_id="a")])[0]
    since = 0
    add_events(
        session,
        [
            ended("Bash", {"command": "x"}, "the result", tool_use_id="a", at=4),
            said("assistant", "what came", at=5),
        ],
    )
    ids = [start.pk + 1, start.pk + 2]
    Change.objects.all().delete()  # a test's transaction commits nothing on PostgreSQL: tell it by hand
    for number, pk in enumerate(ids, start=1):
        Change.objects.create(id=number, at=0, topic="events", key=str(pk), parent=session.pk, op="insert")
    body = viewer.get(reverse("sessions:newest", args=[session.pk]), {"since": since}).content.decode()
    assert "what came" in body
    assert f'id="event-{start.pk}"' in body
    assert "data-completes" in body
    assert "since=2" in body


@pytest.mark.parametrize("since", ["", "x", "-1", "99999999999", "9" * 30])
def test_a_place_that_is_not_kept_loads_the_end_afresh(viewer, session, since):
    answer = viewer.get(reverse("sessions:newest", args=[session.pk]), {"since": since})
    assert answer["HX-Redirect"] == reverse("sessions:detail", args=[session.pk]) + "?from=end"


@pytest.mark.parametrize(
    "query",
    [
        "?after=x",
        "?before=1.2.3",
        "?event=abc",
        "?at=when",
        "?kind=none",
        "?from=middle",
        "?event=99999999",
        "?at=9999-12-31",
        "?after=" + "9" * 40,
    ],
)
def test_an_odd_query_is_no_error(viewer, session, query):
    add_events(session, [said("user", "here")])
    assert page(viewer, session, query).status_code == 200
