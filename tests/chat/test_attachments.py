"""Attached files: where they are kept, what they are taken for, and that they go with their message."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
from django.core.management import call_command

from coordinator.actions.agents import agents
from coordinator.actions.chat import attachments, chat
from coordinator.chat import attachments as reading
from coordinator.errors import BadRequest, NotFound, RequestTooLarge
from coordinator.models import ChatAttachment, ChatMessage
from tests.chat.rows import ANNA, CASES, NOW, add_agent, case, png, upload

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def folder(settings, tmp_path) -> Path:
    settings.DATA_DIR = tmp_path
    add_agent()
    return tmp_path / "attachments"


def send(data: bytes, filename: str = "f.bin", mime_type: str = "image/png") -> ChatAttachment:
    chat.submit_chat_message(
        "agent.robot", [], speaker=ANNA, files=[upload(data, filename, mime_type)], now=NOW
    )
    return ChatAttachment.objects.get()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_at_2_more_than_64_kib_lie_on_disk(folder):
    asked = case("attachments", "at-2")
    data = png(padded_to=asked["bytes"])
    row = send(data)
    assert (row.storage_type, row.inline_data) == (asked["storage_type"], asked["inline_data"])
    assert row.disk_path.startswith("attachments/")
    assert row.disk_path.endswith(".png")
    assert files(folder)[0].read_bytes() == data


def test_at_3_an_empty_file_is_kept_in_its_row(folder):
    row = send(b"")
    assert (row.storage_type, row.size_bytes, bytes(row.inline_data)) == ("inline", 0, b"")


@pytest.mark.parametrize("size", [1, 64 * 1024])
def test_up_to_64_kib_are_kept_in_the_row(folder, size):
    row = send(b"x" * size)
    assert (row.storage_type, len(row.inline_data), row.disk_path) == ("inline", size, None)
    assert not files(folder)


def test_at_5_broken_base64_is_told(folder):
    block = {"type": "image", "url": "data:image/png;base64,@@@"}
    with pytest.raises(BadRequest, match="base64"):
        chat.submit_chat_message("agent.robot", [block], speaker=ANNA, now=NOW)
    assert not ChatMessage.objects.exists()


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "url": "data:image/png;base64,DATA", "alt": "a chart"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "DATA"},
            "alt": "a chart",
        },
    ],
)
def test_a_data_url_becomes_an_attachment_and_no_second_copy(block):
    data = base64.b64encode(png()).decode()
    as_sent = json.loads(json.dumps(block).replace("DATA", data))
    message = chat.submit_chat_message("agent.robot", [as_sent], speaker=ANNA, now=NOW)
    row = ChatAttachment.objects.get()
    (kept,) = ChatMessage.objects.get(pk=message.pk).content
    assert bytes(row.inline_data) == png()
    assert data not in str(kept)
    assert (kept["attachment_id"], kept["alt"], kept["width"], kept["height"]) == (row.pk, "a chart", 40, 30)


@pytest.mark.parametrize("one", CASES["mime_extension"], ids=lambda one: one["mime"])
def test_extension_follows_from_the_type(one):
    assert reading.stored_file_extension(one["mime"]) == one["ext"]


@pytest.mark.parametrize(
    ("data", "declared", "filename", "taken_for"),
    [
        (png(), "text/html", "x.html", "image/png"),
        (b"<html><script>alert(1)</script>", "image/png", "x.png", "application/octet-stream"),
        (b"<svg onload='alert(1)'/>", "image/svg+xml", "x.svg", "image/svg+xml"),
        (b"hello", "", "notes.txt", "text/plain"),
        (b"hello", "text/plain; charset=utf-8", "notes", "text/plain"),
        (b"hello", "not a type\r\nX: y", "notes.nothing", "application/octet-stream"),
    ],
)
def test_type_is_what_the_bytes_prove(data, declared, filename, taken_for):
    assert send(data, filename, declared).mime_type == taken_for


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\a.txt", "a.txt"),
        ("a\r\nSet-Cookie: x.txt", "aSet-Cookie: x.txt"),
        ("invoice\u202egpj.exe", "invoicegpj.exe"),
        ("", "file"),
        ("...", "file"),
        ("x" * 500, "x" * 200),
        ("Gr\u00fc\u00dfe \U0001f600.txt", "Gr\u00fc\u00dfe \U0001f600.txt"),
    ],
)
def test_a_hostile_name_is_tamed_and_never_a_path(folder, sent, kept):
    row = send(b"x" * 70_000, sent)
    assert row.filename == kept
    assert files(folder)[0].resolve().is_relative_to(folder.resolve())
    assert kept not in row.disk_path


def test_more_than_the_limit_is_refused_and_leaves_nothing(folder, settings):
    settings.ATTACHMENT_MAX_BYTES = 100_000
    with pytest.raises(RequestTooLarge):
        send(b"x" * 100_001)
    assert not files(folder)
    assert not ChatMessage.objects.exists()


def test_a_message_that_fails_leaves_no_file(folder):
    send(b"x" * 70_000)
    taken = ChatMessage.objects.get().pk
    with pytest.raises(Exception, match="already"):
        chat.submit_chat_message(
            "agent.robot", [], speaker=ANNA, files=[upload(b"y" * 70_000)], message_id=taken, now=NOW
        )
    assert len(files(folder)) == 1


@pytest.mark.django_db(transaction=True)
def test_at_9_files_go_with_their_agent_message_and_thread(folder, request):
    for number in range(3):
        chat.submit_chat_message(
            "agent.robot", [], speaker=ANNA, files=[upload(bytes([number]) * 70_000)], now=NOW
        )
    first = ChatMessage.objects.order_by("created_at").first()
    assert first is not None
    chat.remove_chat_message(first.pk, actor=ANNA.actor, now=NOW)
    assert len(files(folder)) == 2
    agents.delete_agent_with_data("agent.robot", actor=ANNA.actor, now=NOW)
    assert not files(folder)
    assert not ChatAttachment.objects.exists()


def test_a_path_outside_the_folder_is_never_read(folder, tmp_path):
    secret = tmp_path / "secret_key"
    secret.write_text("s3cret")
    row = send(b"x" * 70_000)
    for path in ("secret_key", "attachments/../secret_key", str(secret), "/etc/passwd"):
        row.disk_path = path
        with pytest.raises(NotFound):
            reading.open_attachment_at_offset(row, 0)
        attachments.remove_attachment_file(path, "folder")
    assert secret.exists()


def test_the_command_finds_orphans_missing_and_damaged_files(folder, capsys):
    lost, changed = send(b"a" * 70_000), None
    chat.submit_chat_message("agent.robot", [], speaker=ANNA, files=[upload(b"b" * 70_000)], now=NOW)
    changed = ChatAttachment.objects.exclude(pk=lost.pk).get()
    (folder.parent / lost.disk_path).unlink()
    (folder.parent / changed.disk_path).write_bytes(b"c" * 70_000)
    stray = folder / "ab" / "stray.bin"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"?")
    os.utime(stray, (0, 0))
    small = [reading.thumbnail_path(pk) for pk in (lost.pk, "gone")]
    small[0].parent.mkdir()
    for path in small:
        path.write_bytes(b"?")
        os.utime(path, (0, 0))
    young = folder / "ab" / "young.bin"
    young.write_bytes(b"?")
    with pytest.raises(SystemExit):
        call_command("attachments", "--checksums", "--delete-orphans")
    told = capsys.readouterr().out
    assert lost.pk in told
    assert changed.pk in told
    assert "stray.bin" in told
    assert not stray.exists()
    assert [path.exists() for path in small] == [True, False]
    assert young.exists()
