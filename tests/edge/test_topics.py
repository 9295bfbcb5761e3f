from __future__ import annotations

import re

import pytest
from django.conf import settings

from coordinator.errors import BadRequest
from coordinator.feed.reader import FeedChange
from coordinator.live.fragments import VIEWS
from coordinator.live.pages import TOPICS, merge_feed_changes_by_subject, parse_requested_topics

BLOCK = re.compile(r"\{% block live_topics %\}(.*?)\{% endblock %\}")
VALUE = re.compile(r"\{\{.*?\}\}")
TAG = re.compile(r"\{%.*?%\}")


def test_every_page_listens_to_topics_that_exist() -> None:
    names = {
        topic.partition(":")[0]
        for path in (settings.BASE_DIR / "templates").rglob("*.html")
        for block in BLOCK.findall(path.read_text())
        for topic in TAG.sub(" ", VALUE.sub("x", block)).split()
    } - {"x"}
    assert names
    assert names <= TOPICS.keys() | VIEWS.keys(), "the stream would refuse the whole page"


def test_topics_are_separated_by_blanks_in_one_or_several_parameters() -> None:
    assert parse_requested_topics(b"topics=sessions+events:ses_1&topics=runs") == {
        "sessions",
        "events:ses_1",
        "runs",
    }


@pytest.mark.parametrize("query", [b"", b"topics=", b"topics=nothing", b"topics=sessions+nothing:1"])
def test_unknown_topics_are_refused(query: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_requested_topics(query)


def test_changes_are_joined_by_what_changed_in_the_order_of_their_last() -> None:
    changes = [
        FeedChange(1, 0, "events", "10", "s1", "insert"),
        FeedChange(2, 0, "sessions", "s1", None, "update"),
        FeedChange(3, 0, "events", "11", "s2", "insert"),
        FeedChange(4, 0, "events", "12", "s1", "insert"),
        FeedChange(5, 0, "sessions", "s2", None, "update"),
    ]
    assert [(change.id, count) for change, count in merge_feed_changes_by_subject(changes)] == [
        (2, 1),
        (3, 1),
        (4, 2),
        (5, 1),
    ]
