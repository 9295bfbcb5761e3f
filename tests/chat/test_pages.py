"""Pages of a thread: sizes as recorded, and nothing lost where instants are equal."""

from __future__ import annotations

import pytest

from coordinator.chat import reading as chat
from coordinator.errors import BadRequest
from coordinator.models import ChatMessage
from tests.chat.rows import CASES, EPOCH, add_agent, add_messages

pytestmark = pytest.mark.django_db

COUNTED = [case for case in CASES["chat_pagination"] if "total_messages" in case]


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: case["id"])
def test_page_is_as_recorded(case):
    add_agent()
    add_messages(case["total_messages"])
    before = None if case["before"] is None else chat.parse_message_position(str(case["before"]))
    limit = chat.PAGE if case["limit"] is None else case["limit"]
    page = chat.load_older_messages("agent.robot", before, limit)
    assert {"returned": len(page.messages), "has_more": page.has_more} == case["expected"]


def same_instant(count: int) -> set[str]:
    add_agent()
    add_messages(count)
    ChatMessage.objects.update(created_at=EPOCH)
    return set(ChatMessage.objects.values_list("pk", flat=True))


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_cp_9_no_message_is_skipped_where_a_page_ends_within_one_instant(limit):
    wanted, found, place = same_instant(15), [], None
    while True:
        page = chat.load_older_messages("agent.robot", place, limit)
        found += [row.pk for row in page.messages]
        if not page.has_more:
            break
        place = chat.message_position(page.messages[0])
    assert len(found) == len(wanted)
    assert set(found) == wanted


def test_going_forward_skips_none_either():
    wanted, found, place = same_instant(15), [], chat.MessagePosition(EPOCH, "")
    while page := chat.load_newer_message_page("agent.robot", place, 4):
        found += [row.pk for row in page.messages]
        place = chat.message_position(page.messages[-1])
        if not page.has_more:
            break
    assert found == sorted(wanted)


def test_a_place_survives_its_text():
    add_agent()
    add_messages(1)
    place = chat.message_position(ChatMessage.objects.get())
    assert chat.parse_message_position(str(place)) == place


@pytest.mark.parametrize("text", ["", "yesterday", "12.5", "1e9", "1" * 40, "--1"])
def test_what_is_no_place_is_refused(text):
    with pytest.raises(BadRequest):
        chat.parse_message_position(text)


@pytest.mark.parametrize("text", ["9" * 19, "-" + "9" * 19])
def test_a_place_beyond_all_time_is_its_end(text):
    add_agent()
    add_messages(3)
    page = chat.load_older_messages("agent.robot", chat.parse_message_position(text))
    assert len(page.messages) == (0 if text.startswith("-") else 3)


def test_a_page_around_a_message_has_both_sides():
    add_agent()
    add_messages(300)
    page, newer = chat.load_message_page_around("agent.robot", "m000150", 50)
    assert [page.messages[0].pk, page.messages[-1].pk] == ["m000125", "m000175"]
    assert (page.has_more, newer) == (True, True)
