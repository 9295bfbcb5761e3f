"""A transcript that cannot be read, or that the server refuses, is named and keeps no other back."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.client import send_transcripts
from coordinator.client.connecting.http_requests import ServerRequestFailed
from coordinator.client.send_transcripts import ChangedTranscript, TranscriptUploader

ANSWER = {"events_added": 1, "events_known": 0, "sessions_made": 0, "sessions_added_to": 0}


@pytest.fixture
def sender(tmp_path: Path) -> TranscriptUploader:
    connection = SimpleNamespace(
        server_state_folder=f"{tmp_path}/state", url="http://signalbox.example", key="k"
    )
    return TranscriptUploader(cast(Any, connection), ["codex"])


def write_files(folder: Path, *names: str) -> list[ChangedTranscript]:
    for name in names:
        (folder / name).write_text(name)
    return [ChangedTranscript(name, f"{folder / name}", [1, 1]) for name in names]


def names_in(archive: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive)).namelist()


def test_a_file_that_cannot_be_read_is_named_and_not_taken_for_sent(
    sender: TranscriptUploader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[list[str]] = []
    monkeypatch.setattr(
        sender, "post_archive_until_server_ready", lambda _, archive: sent.append(names_in(archive)) or ANSWER
    )
    (good,) = write_files(tmp_path, "good.jsonl")
    (tmp_path / "locked.jsonl").mkdir()
    bad = ChangedTranscript("locked.jsonl", f"{tmp_path}/locked.jsonl", [1, 1])
    gone = ChangedTranscript("gone.jsonl", f"{tmp_path}/gone.jsonl", [1, 1])
    sender.send_files("codex", [good, bad, gone])
    assert sent == [["good.jsonl"]]
    assert set(sender.sent) == {good.path, gone.path}
    (problem,) = sender.totals.problems
    assert problem.startswith(f"{bad.path}: cannot be read now")


def test_a_file_that_the_server_refuses_keeps_no_other_back(
    sender: TranscriptUploader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def post(_: str, archive: bytes) -> dict[str, Any]:
        if "b.jsonl" in names_in(archive):
            raise ServerRequestFailed("The archive cannot be read.", 422)
        taken.extend(names_in(archive))
        return ANSWER

    monkeypatch.setattr(sender, "post_archive_until_server_ready", post)
    files = write_files(tmp_path, "a.jsonl", "b.jsonl", "c.jsonl")
    sender.send_files("codex", files)
    assert taken == ["a.jsonl", "c.jsonl"]
    assert sender.totals.files == 2
    assert sender.totals.problems == [f"{tmp_path}/b.jsonl: The archive cannot be read."]
    assert set(sender.sent) == {files[0].path, files[2].path}


@pytest.mark.parametrize("status", [0, 401, 403, 500])
def test_a_server_that_is_away_or_refuses_the_key_ends_the_import(
    sender: TranscriptUploader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    def post(*_: Any) -> dict[str, Any]:
        raise ServerRequestFailed("no", status)

    monkeypatch.setattr(sender, "post_archive_until_server_ready", post)
    with pytest.raises(ServerRequestFailed):
        sender.send_files("codex", write_files(tmp_path, "a.jsonl", "b.jsonl"))
    assert sender.sent == {}


def test_a_file_that_is_too_large_is_named_by_each_import_and_never_counts_as_sent(
    sender: TranscriptUploader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_transcripts, "LARGEST_ARCHIVE", 500)
    monkeypatch.setattr(sender, "post_archive_until_server_ready", lambda _agent, _archive: ANSWER)
    small, large = write_files(tmp_path, "small.jsonl", "large.jsonl")
    Path(large.path).write_bytes(os.urandom(2_000))
    place = cast(
        Any, SimpleNamespace(name="codex", iterate_files=lambda _: [(f.name, f.path) for f in (small, large)])
    )
    for expected_files in (1, 0):  # the next import begins from what is noted in the file
        again = TranscriptUploader(sender.connection, ["codex"])
        monkeypatch.setattr(again, "post_archive_until_server_ready", lambda _agent, _archive: ANSWER)
        found, _ = again.list_changed_and_count_unchanged(place)
        again.send_files("codex", found)
        assert again.totals.files == expected_files
        (problem,) = again.totals.problems
        assert problem.startswith(f"{large.path}: too large to send")
        assert large.path not in again.sent
        assert again.list_changed_and_count_unchanged(place) == (
            [],
            1,
        )  # --watch does not try the same bytes again
