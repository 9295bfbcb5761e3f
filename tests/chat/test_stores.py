"""Attached files in a bucket: kept, read piece by piece and compared, told apart when they cannot be read."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.utils import timezone

from coordinator.actions.chat import attachments, chat, moving_attachments
from coordinator.chat import attachments as reading
from coordinator.chat import verified_reading as checked
from coordinator.chat.stores import circuit_breaker
from coordinator.errors import NotFound, ServiceBusy, StoredDataCorrupt
from coordinator.mcp.servers import credentials
from coordinator.models import AuditLog, ChatAttachment, ChatMessage, StoredFile
from coordinator.operations.backups import buckets, making
from coordinator.operations.doctor import CheckLevel, stored_files
from dashboard.chat import file_views as chat_files
from tests.chat.rows import ANNA, NOW, add_agent, png, upload
from tests.people import signed_in
from tests.s3 import CREDENTIALS, S3, serving
from tests.served import postgres_url

pytestmark = pytest.mark.django_db
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3]:
    with serving() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3, settings, monkeypatch, tmp_path) -> S3:
    """A bucket where new files go, and nothing in it."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    settings.DATA_DIR = tmp_path
    options = {
        "bucket_name": "box",
        "location": "here",
        "endpoint_url": s3_server.url,
        "region_name": "us-east-1",
    }
    settings.STORAGES = settings.STORAGES | {
        "s3": {"BACKEND": "coordinator.chat.stores.s3.Bucket", "OPTIONS": options}
    }
    settings.ATTACHMENTS = "s3"
    s3_server.objects, s3_server.parts, s3_server.asked, s3_server.fault = {}, {}, [], ""
    add_agent()
    return s3_server


def send(data: bytes, filename: str = "f.bin") -> ChatAttachment:
    message = chat.submit_chat_message(
        "agent.robot", [], speaker=ANNA, files=[upload(data, filename, "image/png")], now=NOW
    )
    return ChatAttachment.objects.select_related("stored").get(message=message)


def spoil(s3: S3, at: int) -> None:
    """Turn over one byte of the object."""
    ((name, (data, when)),) = s3.objects.items()
    s3.objects[name] = (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], when)


def test_a_large_file_goes_in_parts_and_comes_back_by_pieces(s3: S3) -> None:
    data = os.urandom(9 * MIB)
    row = send(data)
    assert list(s3.objects) == [f"box/here/{row.disk_path}"]
    assert not s3.parts
    with reading.open_attachment(row) as file:
        assert file.read() == data
        s3.asked.clear()
        file.seek(5 * MIB + 7)
        assert file.read(10) == data[5 * MIB + 7 :][:10]
    assert s3.asked == [f"GET /box/here/{row.disk_path} bytes={5 * MIB}-{5 * MIB + checked.PIECE - 1}"]


def test_pages_and_programs_get_it_through_us_with_ranges(s3: S3) -> None:
    data = png(padded_to=2 * MIB)
    row = send(data, "<b>.png")
    client = signed_in("viewer")
    s3.asked.clear()
    url = f"/ui/chat/files/{row.pk}/"
    assert client.head(url)["Content-Length"] == str(len(data))
    assert client.get(url, headers={"If-None-Match": f'"{row.pk}"'}).status_code == 304
    assert client.get(url, headers={"Range": "bytes=99999999-"}).status_code == 416
    assert not s3.asked, "its row says it all"
    part = client.get(url, headers={"Range": f"bytes={MIB}-{MIB + 9}"})
    assert (part.status_code, part.getvalue()) == (206, data[MIB : MIB + 10])
    assert part["Content-Type"] == "image/png"
    assert "sandbox" in part["Content-Security-Policy"]
    assert "Location" not in part
    assert client.get(url).getvalue() == data


def test_a_wrong_byte_is_never_given_out(s3: S3) -> None:
    row = send(os.urandom(MIB))
    spoil(s3, 3 * checked.PIECE)
    with reading.open_attachment(row) as file:
        assert len(file.read(3 * checked.PIECE)) == 3 * checked.PIECE
    with pytest.raises(StoredDataCorrupt):
        reading.open_attachment_at_offset(row, 3 * checked.PIECE + 5)
    with pytest.raises(StoredDataCorrupt):
        reading.compute_attachment_sha256(row)
    assert attachments.compare_stored_files_with_rows(NOW, checksums=True).damaged == [row.pk]


def test_an_object_that_is_gone_or_shorter_is_told(s3: S3) -> None:
    row = send(os.urandom(MIB))
    ((name, (data, when)),) = s3.objects.items()
    s3.objects[name] = (data[: checked.PIECE], when)
    with pytest.raises(StoredDataCorrupt):
        reading.open_attachment_at_offset(row, 3 * checked.PIECE)
    assert attachments.compare_stored_files_with_rows(NOW).damaged == [row.pk]
    s3.objects.clear()
    with pytest.raises(NotFound):
        reading.open_attachment_at_offset(row, 0)
    assert attachments.compare_stored_files_with_rows(NOW).missing == [row.pk]


def test_a_bucket_that_fails_is_told_to_people_and_programs_and_leaves_nothing(s3: S3) -> None:
    row = send(png(padded_to=MIB))
    s3.fault = "AccessDenied"
    with pytest.raises(
        ServiceBusy, match=r"could not be stored: the S3 bucket box answers AccessDenied\. Nothing was sent"
    ):
        send(os.urandom(MIB))
    assert (ChatMessage.objects.count(), StoredFile.objects.count()) == (1, 1)
    with pytest.raises(ServiceBusy, match="cannot be read now: the S3 bucket box answers AccessDenied"):
        reading.open_attachment_at_offset(row, 0)
    client = signed_in("viewer")
    answer = client.get(f"/ui/chat/files/{row.pk}/")
    assert answer.status_code == 503
    assert "cannot be read now" in answer.content.decode()
    assert "test-secret" not in answer.content.decode()
    assert client.get(f"/ui/chat/files/{row.pk}/thumbnail/").getvalue() == chat_files.NOT_NOW.read_bytes()
    in_page = client.get(f"/ui/chat/files/{row.pk}/", headers={"Sec-Fetch-Dest": "image"})
    assert (in_page.status_code, in_page.content) == (503, chat_files.NOT_NOW.read_bytes())
    said = signed_in("approver").post(
        "/ui/chat/with/agent.robot/say/",
        {"files": SimpleUploadedFile("f.bin", os.urandom(MIB))},
        headers={"HX-Request": "true"},
    )
    assert (said.status_code, said.json()["detail"][:31]) == (503, "The file could not be stored: t")
    assert client.get("/ui/chat/with/agent.robot/").status_code == 200
    assert "cannot be listed" in attachments.compare_stored_files_with_rows(NOW).silent[0]
    assert [check.level for check in stored_files.iterate_stored_file_checks(NOW)] == [
        CheckLevel.FAIL,
        CheckLevel.FAIL,
    ]


def test_an_answer_that_is_cut_is_asked_for_once_more(s3: S3, monkeypatch) -> None:
    data = os.urandom(MIB)
    row = send(data)
    s3.fault = "cut"
    with pytest.raises(ServiceBusy, match="does not answer"):
        reading.open_attachment_at_offset(row, 0)
    assert len(s3.reading()) == 2
    s3.fault = ""
    with pytest.raises(ServiceBusy, match="does not answer"):
        reading.open_attachment_at_offset(row, 0)
    assert len(s3.reading()) == 2, "after two in a row it is left alone for a while"
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + circuit_breaker.OPEN_SECONDS)
    monkeypatch.setattr(circuit_breaker, "time", later)
    with reading.open_attachment(row) as file:
        assert file.read() == data


@pytest.mark.django_db(transaction=True)
def test_objects_go_with_their_message_and_orphans_are_found(s3: S3) -> None:
    row = send(os.urandom(MIB))
    s3.put("box/here/attachments/ab/stray.bin", b"?", datetime(2020, 1, 1, tzinfo=UTC))
    s3.put("box/here/attachments/ab/young.bin", b"?", NOW)
    s3.put("box/other/attachments/ab/not-ours.bin", b"?", datetime(2020, 1, 1, tzinfo=UTC))
    found = attachments.compare_stored_files_with_rows(NOW)
    assert [one.name for one in found.orphans] == ["attachments/ab/stray.bin"]
    assert attachments.remove_orphan_files(found, NOW) == 1
    chat.remove_chat_message(row.message_id, actor=ANNA.actor, now=NOW)
    assert sorted(s3.objects) == [
        "box/here/attachments/ab/young.bin",
        "box/other/attachments/ab/not-ours.bin",
    ]


@pytest.mark.one_engine
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(postgres_url() is not None, reason="pg_dump has nothing to do with it")
def test_a_backup_tells_of_objects_that_are_missing_or_that_nobody_could_look_for(s3: S3, tmp_path) -> None:
    row = send(os.urandom(MIB))
    s3.objects.clear()
    told: list[str] = []
    made = making.write_backup_folder(tmp_path / "one", NOW, say=told.append)
    assert f"1 of them are missing or damaged: {row.pk}." in told[-1]
    assert (made.elsewhere or {})["missing"] == [row.pk]
    with pytest.raises(CommandError, match="no longer exists"):
        making.write_backup_folder(tmp_path / "two", NOW, say=told.append, with_bucket=True)
    assert not (tmp_path / "two").exists()
    s3.fault = "AccessDenied"
    making.write_backup_folder(tmp_path / "three", NOW, say=told.append)
    assert "Signalbox could not check that they are there: the S3 bucket box answers AccessDenied" in told[-1]


def test_a_server_without_the_bucket_says_what_to_set(s3: S3, settings) -> None:
    row = send(os.urandom(MIB))
    settings.STORAGES = {name: one for name, one in settings.STORAGES.items() if name != "s3"}
    with pytest.raises(ServiceBusy, match="SIGNALBOX_S3_BUCKET names none here"):
        reading.open_attachment(row)
    told = buckets.check_uncopied_bucket_files()
    assert told
    assert "SIGNALBOX_S3_BUCKET names none here" in told.describe_bucket_files


@pytest.mark.django_db(transaction=True)
def test_files_are_moved_there_and_back_while_somebody_has_one_open(
    s3: S3, settings, tmp_path, capsys
) -> None:
    settings.ATTACHMENTS = "folder"
    data = [os.urandom(MIB), png(padded_to=MIB), os.urandom(70_000)]
    rows = [send(one) for one in data]
    StoredFile.objects.filter(pk=rows[2].pk).delete()  # from an older version
    settings.ATTACHMENTS = "s3"
    with reading.open_attachment_at_offset(rows[0], 0) as held:
        call_command("move_attachments", "--dry-run")
        assert "3 files (2.1 MB) are not in s3" in capsys.readouterr().out
        call_command("move_attachments")
        assert held.read() == data[0]
    assert "Moved 3 files (2.1 MB)" in capsys.readouterr().out
    assert len(s3.objects) == 3
    assert not [path for path in (tmp_path / "attachments").rglob("*") if path.is_file()]
    with reading.open_attachment_at_offset(rows[1], 0) as file:  # a row that was read before the move
        assert file.read() == data[1]
    doctor = {check.name: check for check in stored_files.iterate_stored_file_checks(timezone.now())}
    assert {check.level for check in doctor.values()} == {CheckLevel.OK}, doctor
    call_command("move_attachments", "--to=folder", "--keep")
    doctor = {check.name: check for check in stored_files.iterate_stored_file_checks(timezone.now())}
    assert "3 files are not in s3" in doctor["attachments"].message
    assert len(s3.objects) == 3
    assert set(StoredFile.objects.values_list("place", flat=True)) == {"folder"}
    assert {
        reading.open_attachment(row).read() for row in ChatAttachment.objects.select_related("stored")
    } == set(data)
    assert AuditLog.objects.filter(event_type="ATTACHMENTS_MOVED").count() == 2


@pytest.fixture
def broken_off(s3: S3, settings, tmp_path) -> ChatAttachment:
    """A file in the folder, and the copy of it that a move left in the bucket years ago."""
    settings.ATTACHMENTS = "folder"
    row = send(os.urandom(70_000))
    settings.ATTACHMENTS = "s3"
    copy = (tmp_path / (row.disk_path or "")).read_bytes()
    s3.put(f"box/here/{row.disk_path}", copy, datetime(2020, 1, 1, tzinfo=UTC))
    return row


@pytest.mark.django_db(transaction=True)
def test_an_unused_copy_that_a_move_uses_after_all_stays(broken_off: ChatAttachment) -> None:
    found = attachments.compare_stored_files_with_rows(timezone.now())
    assert [one.name for one in found.orphans] == [broken_off.disk_path]
    call_command("move_attachments")
    assert attachments.remove_orphan_files(found, timezone.now()) == 0
    assert len(reading.open_attachment(ChatAttachment.objects.get()).read()) == 70_000


@pytest.mark.django_db(transaction=True)
def test_an_unused_copy_that_a_move_has_just_written_anew_stays(s3: S3, broken_off: ChatAttachment) -> None:
    found = attachments.compare_stored_files_with_rows(timezone.now())
    s3.put(f"box/here/{broken_off.disk_path}", b"x" * 70_000)
    assert attachments.remove_orphan_files(found, timezone.now()) == 0
    assert len(s3.objects) == 1


@pytest.mark.django_db(transaction=True)
def test_an_unused_copy_that_nobody_uses_goes(s3: S3, broken_off: ChatAttachment) -> None:
    assert (
        attachments.remove_orphan_files(
            attachments.compare_stored_files_with_rows(timezone.now()), timezone.now()
        )
        == 1
    )
    assert not s3.objects
    assert len(reading.open_attachment(ChatAttachment.objects.get()).read()) == 70_000


@pytest.mark.django_db(transaction=True)
def test_a_file_whose_new_copy_is_removed_meanwhile_stays_where_it_was(
    s3: S3, broken_off: ChatAttachment, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(moving_attachments, "verify_copied_file", lambda *_: s3.objects.clear())
    with pytest.raises(SystemExit):
        call_command("move_attachments")
    assert f"not moved  {broken_off.pk}" in capsys.readouterr().err
    assert len(reading.open_attachment(ChatAttachment.objects.get()).read()) == 70_000


@pytest.mark.django_db(transaction=True)
def test_an_attachment_that_is_deleted_while_it_is_looked_through_is_said_to_be_gone(
    s3: S3, settings
) -> None:
    settings.ATTACHMENTS = "folder"
    send(os.urandom(70_000))
    StoredFile.objects.all().delete()
    row = ChatAttachment.objects.select_related("message").get()
    ChatAttachment.objects.filter(pk=row.pk).delete()  # its file is still there
    with pytest.raises(NotFound, match="no longer exists"):
        attachments.record_file_fingerprint(row)


@pytest.mark.django_db(transaction=True)
def test_what_cannot_be_moved_stays_and_a_bucket_that_fails_stops_it(
    s3: S3, settings, tmp_path, capsys
) -> None:
    settings.ATTACHMENTS = "folder"
    good, damaged, odd, gone = (send(os.urandom(70_000)) for _ in range(4))
    (tmp_path / (damaged.disk_path or "")).write_bytes(b"x" * 70_000)
    ChatAttachment.objects.filter(pk=odd.pk).update(disk_path="attachments/../attachments/x.bin")
    (tmp_path / (gone.disk_path or "")).unlink()
    s3.fault = "AccessDenied"
    with pytest.raises(CommandError, match=r"AccessDenied.*run this again"):
        call_command("move_attachments", "--to=s3")
    s3.fault = ""
    with pytest.raises(SystemExit):
        call_command("move_attachments", "--to=s3")
    told = capsys.readouterr()
    assert "1 files" in told.out
    assert {line.split()[2].rstrip(":") for line in told.err.splitlines()} == {damaged.pk, odd.pk, gone.pk}
    assert list(s3.objects) == [f"box/here/{good.disk_path}"]
    assert (tmp_path / (damaged.disk_path or "")).exists()


def test_a_file_from_before_is_known_again_once_it_was_looked_through(settings, tmp_path) -> None:
    settings.DATA_DIR = tmp_path
    add_agent()
    row = send(os.urandom(MIB))
    StoredFile.objects.all().delete()
    row = ChatAttachment.objects.get(pk=row.pk)
    assert attachments.compare_stored_files_with_rows(NOW).unknown == [row.pk]
    assert attachments.compare_stored_files_with_rows(NOW, checksums=True).damaged == []
    assert attachments.compare_stored_files_with_rows(NOW).unknown == []
    (tmp_path / (row.disk_path or "")).write_bytes(b"x" * MIB)
    with pytest.raises(StoredDataCorrupt):
        reading.compute_attachment_sha256(ChatAttachment.objects.get(pk=row.pk))


def test_reading_jumps_and_ends_as_a_plain_file_does() -> None:
    data = os.urandom(3 * checked.PIECE + 5)
    known = checked.fingerprint_file_content(io.BytesIO(data))

    class Memory:
        def open_byte_range(self, name: str, start: int, length: int) -> io.BytesIO:
            return io.BytesIO(data[start : start + length])

    row = StoredFile(size_bytes=known.size, sha256=known.sha256, pieces=known.pieces)
    with checked.open_file_verified_while_reading(Memory(), "x", row) as file, io.BytesIO(data) as plain:  # type: ignore[arg-type]
        for at, size in ((0, 10), (checked.PIECE - 3, 9), (3 * checked.PIECE, 99), (5, -1), (10**9, 4)):
            file.seek(at), plain.seek(at)
            assert file.read(size) == plain.read(size)


def test_no_mcp_server_is_given_the_buckets_credentials(settings) -> None:
    assert not credentials.is_variable_reserved_for_signalbox("AWS_SECRET_ACCESS_KEY")
    settings.S3_BUCKET = "box"
    assert credentials.is_variable_reserved_for_signalbox("aws_secret_access_key")
