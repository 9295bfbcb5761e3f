"""What may be said, by whom, and in which order it stands."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coordinator.actions.chat import chat
from coordinator.actions.policy import agent_power
from coordinator.chat import reading
from coordinator.errors import BadRequest, Conflict, Forbidden, NotFound, RequestTooLarge
from coordinator.identity.keys import KeyIdentity
from coordinator.models import ChatMessage
from tests.chat.rows import ANNA, NOW, ROBOT, add_agent, add_messages, say

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def agent():
    return add_agent()


def key(agent_id: str | None = None) -> KeyIdentity:
    return KeyIdentity(7, "bridge", frozenset({"agent", "operator"}), agent_id)


def test_a_message_is_kept_as_it_was_said():
    blocks = [
        {"type": "text", "text": "see"},
        {"type": "code", "language": "py", "code": "x = 1"},
        {"type": "hologram", "depth": 3},
    ]
    message = chat.submit_chat_message(
        "agent.robot", blocks, speaker=ANNA, metadata={"mood": "calm"}, now=NOW
    )
    stored = ChatMessage.objects.get(pk=message.pk)
    assert (stored.content, stored.metadata, stored.source, stored.user_id, stored.created_at) == (
        blocks,
        {"mood": "calm"},
        "user",
        "anna",
        NOW,
    )


@pytest.mark.parametrize(
    "content",
    [
        "hi",
        None,
        [],
        [{"type": "text", "text": "x"}] * 21,
        ["hi"],
        [{"text": "no type"}],
        [{"type": "text"}],
        [{"type": ""}],
    ],
)
def test_what_is_no_message_is_refused(content):
    with pytest.raises(BadRequest):
        chat.submit_chat_message("agent.robot", content, speaker=ANNA, now=NOW)
    assert not ChatMessage.objects.exists()


def test_an_endless_text_is_refused():
    with pytest.raises(RequestTooLarge):
        say("x" * 1_000_001)


@pytest.mark.parametrize("message_id", ["../../x", "a/b", "", "x" * 129, "a b", "ü", "a\n"])
def test_an_id_that_is_no_plain_name_is_refused(message_id):
    with pytest.raises(BadRequest):
        say("hi", message_id=message_id)


def test_a_taken_id_is_a_conflict():
    say("hi", message_id="m-1")
    with pytest.raises(Conflict):
        say("again", message_id="m-1")
    assert ChatMessage.objects.count() == 1


def test_an_unknown_agent_is_not_found():
    with pytest.raises(NotFound):
        say("hi", "agent.nobody")


def test_an_agent_that_is_switched_off_is_told_nothing_but_may_end_its_sentence():
    agent_power.set_agent_enabled("agent.robot", False, actor=ANNA.actor, now=NOW)
    with pytest.raises(Conflict, match="switched off"):
        say("hi")
    assert say("bye", by=ROBOT).source == "agent"


def test_a_key_of_an_agent_speaks_as_that_agent_alone():
    speaker = chat.build_api_key_speaker(key("agent.robot"), "agent.robot", to="anna")
    assert (speaker.source, speaker.user_id, str(speaker.actor)) == ("agent", "anna", "key:bridge")
    with pytest.raises(Forbidden):
        chat.build_api_key_speaker(key("agent.robot"), "agent.other")


def test_another_key_speaks_under_its_own_name():
    speaker = chat.build_api_key_speaker(key(), "agent.robot", to="anna")
    assert (speaker.source, speaker.user_id) == ("user", "key:bridge")


def test_messages_of_one_instant_get_places_one_after_the_other():
    said = [say(str(number)) for number in range(3)]
    assert [one.created_at - NOW for one in said] == [timedelta(milliseconds=n) for n in range(3)]


def test_a_clock_that_runs_back_does_not_put_a_message_before_what_was_said():
    say("first", now=NOW + timedelta(seconds=5))
    assert say("second", now=NOW).created_at > NOW + timedelta(seconds=5)


def test_a_message_from_far_in_the_future_does_not_drag_others_along():
    add_messages(1)
    ChatMessage.objects.update(created_at=NOW + timedelta(days=400))
    assert say("now").created_at == NOW


def test_an_agent_is_told_what_it_has_not_answered():
    say("one")
    say("two", by=ROBOT)
    say("three")
    told = reading.unanswered_messages_json_or_none(
        "agent.robot", reading.last_agent_position_or_epoch("agent.robot")
    )
    assert told is not None
    assert [one["content"][0]["text"] for one in told["messages"]] == ["three"]
    assert (
        reading.unanswered_messages_json_or_none("agent.robot", reading.parse_message_position(told["after"]))
        is None
    )


def test_a_lone_surrogate_is_read_as_its_escape_and_a_nul_is_kept():
    stored = ChatMessage.objects.get(pk=say("a\ud800b\x00c").pk)
    assert stored.content[0]["text"] == "a\\ud800b\x00c"


def test_what_a_deleted_message_said_is_not_in_the_audit_log():
    from coordinator.models import AuditLog

    message = say("the secret plan")
    chat.remove_chat_message(message.pk, actor=ANNA.actor)
    row = AuditLog.objects.get(event_type="CHAT_MESSAGE_DELETED")
    assert "secret" not in str(row.metadata)
