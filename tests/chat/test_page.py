"""The chat pages without a browser: what they draw, who may what, what is unread for whom."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions.chat import chat, chat_search
from coordinator.chat import reading
from coordinator.feed.reader import FeedChange
from coordinator.models import AuditLog, ChatAttachment, ChatMessage, ReadMark
from dashboard.chat.messages import build_chat_message_fragments, build_chat_message_views
from dashboard.chat.threads import load_chat_rows
from tests.chat.rows import ANNA, ROBOT, add_agent, add_messages, png, say, text, upload
from tests.people import person, signed_in

pytestmark = pytest.mark.django_db
THREAD = "/ui/chat/with/agent.robot/"
FRAGMENT = {"HX-Request": "true"}


@pytest.fixture(autouse=True)
def folder(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    add_agent()
    return tmp_path


def body(response: Any) -> str:
    return str(response.content.decode())


def test_a_thread_shows_its_newest_messages_in_order():
    add_messages(60)
    page = body(signed_in("viewer").get(THREAD))
    assert page.index("<p>number 11<") < page.index("<p>number 60<")
    assert "<p>number 10<" not in page
    assert "Older messages" in page


def test_older_messages_come_as_a_fragment_until_the_beginning():
    add_messages(60)
    newest = reading.load_older_messages("agent.robot", None).messages[0]
    answer = signed_in("viewer").get(
        THREAD, {"before": str(reading.message_position(newest))}, headers=FRAGMENT
    )
    assert body(answer).count('<li class="chat-message') == 10
    assert "The beginning of the chat" in body(answer)
    assert "<html" not in body(answer)


def test_a_permalink_shows_the_part_around_its_message():
    add_messages(300)
    page = body(signed_in("viewer").get(THREAD, {"message": "m000150"}))
    assert 'data-target="m000150"' in page
    assert "To the newest messages" in page
    assert signed_in("approver").get(THREAD, {"message": "gone"}).status_code == 404


def test_a_thread_says_how_far_the_newest_message_is_on_its_way():
    client = signed_in("approver")
    assert "Not delivered yet" not in body(client.get(THREAD))
    client.post(f"{THREAD}say/", {"text": "hi"})
    place = reading.message_position(ChatMessage.objects.get())
    assert "Not delivered yet" in body(client.get(THREAD))
    chat.mark_messages_sent_to_agent("agent.robot", place)
    assert "Delivered to" in body(client.get(f"{THREAD}delivery/"))
    chat.mark_messages_read_by_agent("agent.robot", place)
    assert "Seen by" in body(client.get(f"{THREAD}delivery/"))
    client.post(f"{THREAD}say/", {"text": "and this"})
    assert "Not delivered yet" in body(client.get(f"{THREAD}delivery/"))
    say("It is done.", by=ROBOT, now=timezone.now())
    assert "Not delivered yet" not in body(client.get(f"{THREAD}delivery/"))


def test_an_agent_that_claims_to_have_read_the_future_has_read_what_there_is():
    client = signed_in("approver")
    client.post(f"{THREAD}say/", {"text": "hi"})
    chat.mark_messages_read_by_agent("agent.robot", reading.parse_message_position("9999999999999"))
    assert "Seen by" in body(client.get(THREAD))
    client.post(f"{THREAD}say/", {"text": "later"})
    assert "Not delivered yet" in body(client.get(THREAD))


def test_an_unknown_agent_is_404():
    assert signed_in("viewer").get("/ui/chat/with/agent.nobody/").status_code == 404


def test_an_agent_whose_id_has_slashes_has_a_page():
    add_agent("odd/id with ? and #")
    client = signed_in("approver")
    assert client.get("/ui/chat/").status_code == 200
    answer = client.post("/ui/chat/with/odd/id%20with%20%3F%20and%20%23/say/", {"text": "hi"})
    assert answer.status_code == 302
    assert client.get(answer["Location"]).status_code == 200


def test_a_person_speaks_as_themselves_whatever_the_form_says():
    signed_in("approver").post(f"{THREAD}say/", {"text": "hi", "source": "agent", "user_id": "boss"})
    message = ChatMessage.objects.get()
    assert (message.source, message.user_id) == ("user", "approver")


def test_a_viewer_says_nothing():
    assert signed_in("viewer").post(f"{THREAD}say/", {"text": "hi"}).status_code == 403


def test_what_is_sent_twice_is_said_once():
    client = signed_in("approver")
    answers = [
        client.post(f"{THREAD}say/", {"text": "hi", "id": "msg_1"}, headers=FRAGMENT) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert ChatMessage.objects.count() == 1


def test_an_id_of_somebody_else_is_no_second_try():
    say("theirs", message_id="msg_1")
    answer = signed_in("approver").post(f"{THREAD}say/", {"text": "hi", "id": "msg_1"}, headers=FRAGMENT)
    assert answer.status_code == 409
    assert "already" in answer.json()["detail"]


def test_an_empty_message_is_refused_with_a_reason():
    answer = signed_in("approver").post(f"{THREAD}say/", {"text": "  "}, headers=FRAGMENT)
    assert (answer.status_code, "content blocks" in answer.json()["detail"]) == (400, True)


def test_files_are_said_with_their_words():
    file = io.BytesIO(png())
    file.name = "../chart.png"
    signed_in("approver").post(f"{THREAD}say/", {"text": "see", "files": [file]})
    page = body(signed_in("viewer").get(THREAD))
    row = ChatAttachment.objects.get()
    assert row.filename == "chart.png"
    assert f'href="/ui/chat/files/{row.pk}/"' in page
    assert 'width="40" height="30"' in page


@pytest.mark.parametrize(
    ("block", "drawn"),
    [
        ({"type": "text", "text": "**bold** <script>x()</script>"}, "<strong>bold</strong> &lt;script&gt;"),
        ({"type": "code", "code": "x = 'a'", "language": "python"}, "hl-"),
        ({"type": "hologram", "depth": 3}, "A block of kind hologram"),
        ({"type": "tool_result", "tool_name": "search", "output": {"n": 1}}, "Result of search"),
        (
            {"type": "image", "url": "https://elsewhere.example/x.png"},
            'href="https://elsewhere.example/x.png"',
        ),
        ({"type": "image", "url": "javascript:x()"}, "A block of kind image"),
        ({"type": "file", "attachment_id": "att_gone", "filename": "<b>.txt"}, "&lt;b&gt;.txt"),
    ],
)
def test_every_kind_of_block_is_drawn(block, drawn):
    chat.submit_chat_message("agent.robot", [block], speaker=ROBOT)
    page = body(signed_in("viewer").get(THREAD))
    assert drawn in page
    assert "<script>x" not in page


@pytest.mark.parametrize("content", ["plain", {"a": 1}, None, 3, ["x", None]])
def test_content_of_another_program_that_is_no_list_is_shown(content):
    add_messages(1)
    ChatMessage.objects.update(content=content if content is not None else "x")
    assert signed_in("viewer").get(THREAD).status_code == 200
    assert signed_in("approver").get(f"{THREAD}export.md").status_code == 200


def test_svg_is_a_file_to_download_and_never_an_image():
    svg = upload(b"<svg onload='x()'/>", "x.svg", "image/svg+xml")
    chat.submit_chat_message("agent.robot", [], speaker=ANNA, files=[svg])
    row = ChatAttachment.objects.get()
    client = signed_in("viewer")
    assert "<img" not in body(client.get(THREAD)).split("chat-messages")[1].split("</ol>")[0]
    answer = client.get(f"/ui/chat/files/{row.pk}/")
    assert answer["Content-Disposition"].startswith("attachment")
    assert "sandbox" in answer["Content-Security-Policy"]
    assert client.get(f"/ui/chat/files/{row.pk}/thumbnail/").status_code == 404


def test_an_image_opens_in_the_browser_and_has_a_small_picture():
    chat.submit_chat_message("agent.robot", [], speaker=ANNA, files=[upload(png((3000, 2000)), "big.png")])
    row = ChatAttachment.objects.get()
    client = signed_in("viewer")
    assert client.get(f"/ui/chat/files/{row.pk}/")["Content-Disposition"].startswith("inline")
    small = client.get(f"/ui/chat/files/{row.pk}/thumbnail/")
    assert small["Content-Type"] == "image/webp"
    assert small.getvalue()[8:12] == b"WEBP"
    assert f"/ui/chat/files/{row.pk}/thumbnail/" in body(client.get(THREAD))


def test_an_image_of_too_many_pixels_has_no_small_picture(monkeypatch):
    monkeypatch.setattr("coordinator.chat.thumbnails.MOST_PIXELS", 100)
    chat.submit_chat_message("agent.robot", [], speaker=ANNA, files=[upload(png((300, 200)), "big.png")])
    row = ChatAttachment.objects.get()
    assert signed_in("viewer").get(f"/ui/chat/files/{row.pk}/thumbnail/").status_code == 404


def test_files_are_for_people_who_are_signed_in():
    chat.submit_chat_message("agent.robot", [], speaker=ANNA, files=[upload(b"x")])
    assert Client().get(f"/ui/chat/files/{ChatAttachment.objects.get().pk}/").status_code == 302


def unread_of(user: Any) -> int:
    return next(row.unread for row in load_chat_rows(user) if row.agent.pk == "agent.robot")


def test_what_others_said_is_unread_until_it_was_seen():
    anna, now = person("approver", "anna"), timezone.now()
    say("mine", now=now)
    say("answer", by=ROBOT, now=now)
    last = say("more", by=ROBOT, now=now)
    assert unread_of(anna) == 2
    chat.mark_thread_read("anna", "agent.robot", reading.message_position(last))
    assert unread_of(anna) == 0
    say("news", by=ROBOT, now=now + timedelta(minutes=1))
    assert unread_of(anna) == 1


def test_marks_only_move_forward():
    first, second = say("1", now=timezone.now()), say("2", now=timezone.now())
    for message in (second, first):
        chat.mark_thread_read("anna", "agent.robot", reading.message_position(message))
    assert ReadMark.objects.get().message_id == second.pk


def test_what_was_said_before_somebody_joined_is_not_news_to_them():
    say("old", now=timezone.now() - timedelta(days=3))
    assert unread_of(person("viewer")) == 0


def test_the_page_notes_what_was_read():
    client, message = signed_in("viewer"), say("x", by=ROBOT, now=timezone.now())
    answer = client.post(f"{THREAD}read/", {"place": str(reading.message_position(message))})
    assert answer.status_code == 204
    assert ReadMark.objects.get().message_id == message.pk
    assert client.post(f"{THREAD}read/", {"place": "?"}).status_code == 400


def test_only_admins_delete_and_it_is_audited():
    message = say("x", now=timezone.now())
    assert signed_in("approver").post(f"/ui/chat/messages/{message.pk}/delete/").status_code == 403
    answer = signed_in("admin").post(f"/ui/chat/messages/{message.pk}/delete/", headers=FRAGMENT)
    assert (answer.status_code, ChatMessage.objects.count()) == (200, 0)
    assert AuditLog.objects.filter(event_type="CHAT_MESSAGE_DELETED", actor_id="user:admin").exists()


def test_a_thread_is_deleted_once_its_agents_id_was_typed():
    say("x", now=timezone.now())
    client = signed_in("admin")
    assert client.post(f"{THREAD}clear/", {"typed": "agent"}).status_code == 422
    assert ChatMessage.objects.exists()
    client.post(f"{THREAD}clear/", {"typed": "agent.robot"})
    assert not ChatMessage.objects.exists()
    assert AuditLog.objects.get(event_type="CHAT_DELETED").metadata["taken_along"]["chat messages"] == 1


def found(words: str, **others: str) -> str:
    return body(signed_in("viewer").get("/ui/chat/search/", {"q": words, **others}))


def test_messages_are_found_by_their_words_and_forgotten_with_them():
    from django.contrib.auth.models import User

    message = say("the pool ran dry at midnight", now=timezone.now())
    assert "<mark>midnight</mark>" in found("midnight pool")
    User.objects.all().delete()
    chat.remove_chat_message(message.pk, actor=ANNA.actor)
    assert "No messages match" in found("midnight")


def test_messages_of_other_programs_are_found_after_housekeeping():
    add_messages(3)
    assert chat_search.index_unindexed_chat_messages() == 3
    assert chat_search.index_unindexed_chat_messages() == 0
    assert "number 2" in found('"number 2"').replace("<mark>", "").replace("</mark>", "")


def test_search_stays_in_one_chat_where_asked():
    add_agent("agent.other")
    say("needle", now=timezone.now())
    assert "No messages match" in found("needle", agent="agent.other")


@pytest.mark.parametrize("words", ["'", '"', "*", "a AND", "(", "\\", "%"])
def test_odd_questions_are_answered(words):
    assert "Search" in found(words)


def test_a_thread_is_taken_along_in_full():
    add_messages(450)
    client = signed_in("viewer")
    lines = client.get(f"{THREAD}export.ndjson").getvalue().decode().splitlines()
    assert len(lines) == 450
    document = client.get(f"{THREAD}export.md").getvalue().decode()
    assert document.index("number 1\n") < document.index("number 450")


def change(op: str, key: str) -> FeedChange:
    return FeedChange(id=1, at=0, topic="chat_messages", key=key, parent="agent.robot", op=op)


def test_a_new_message_goes_to_the_end_of_its_thread_as_the_page_draws_it():
    message = say("live", now=timezone.now())
    (fragment,) = build_chat_message_fragments(change("insert", message.pk))
    assert (fragment.target, fragment.swap) == ('[data-thread="agent.robot"]', "beforeend")
    assert fragment.html.strip() in body(signed_in("viewer").get(THREAD))


def test_a_deleted_message_leaves_the_page():
    (fragment,) = build_chat_message_fragments(change("delete", 'a"b'))
    assert (fragment.target, fragment.swap) == ('[data-message="a\\22 b"]', "delete")


def test_a_page_of_messages_takes_a_query_for_all_their_files_and_one_for_their_versions(
    django_assert_num_queries,
):
    for _ in range(3):
        chat.submit_chat_message("agent.robot", text("x"), speaker=ANNA, files=[upload(b"x")])
    messages = list(ChatMessage.objects.all())
    with django_assert_num_queries(2):
        assert all(len(one.message_blocks) == 2 for one in build_chat_message_views(messages, "Robot"))
