"""The first key of the log where several servers that share its file start at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordinator.transparency import keys
from coordinator.transparency.notes import NoteSigner

pytestmark = pytest.mark.django_db


def test_nobody_finds_half_a_key(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[bool] = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        there.append(key_file.exists())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    assert (
        keys.load_or_create_audit_signer().private_key_text
        == keys.load_or_create_audit_signer().private_key_text
    )
    assert there == [False]
    assert list(key_file.parent.iterdir()) == [key_file]


def test_who_comes_second_takes_the_key_of_the_first(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = NoteSigner.generate_note_signer("signalbox/first")
    link = os.link

    def be_slower(made: Path, to: Path) -> None:
        key_file.write_text(f"{first.private_key_text}\n")
        key_file.chmod(0o600)
        link(made, to)

    monkeypatch.setattr(os, "link", be_slower)
    assert keys.load_or_create_audit_signer().private_key_text == first.private_key_text
    assert list(key_file.parent.iterdir()) == [key_file]
