"""Signed notes and keys as Go's sumdb/note writes them, checkpoints, cosignatures, proof files."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coordinator.transparency.notes import (
    COSIGNATURE,
    InclusionProof,
    LogCheckpoint,
    NoteError,
    NoteSigner,
    NoteVerifier,
    SignedNote,
    format_note_signature_line,
    split_signed_notes,
)

# The example of golang.org/x/mod/sumdb/note: its keys, its text and the signature that Go makes.
GO_PRIVATE = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
GO_PUBLIC = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_TEXT = (
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
)
GO_SIGNATURE = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
GO_LINE = f"— PeterNeumann {GO_SIGNATURE}\n"
SUM_GOLANG_ORG = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"


def test_a_note_is_signed_as_go_signs_it() -> None:
    signer = NoteSigner.parse(GO_PRIVATE)
    assert signer.public_verifier.public_key_text == GO_PUBLIC
    assert signer.private_key_text == GO_PRIVATE
    assert signer.sign_note(GO_TEXT) == f"{GO_TEXT}\n{GO_LINE}"
    key = NoteVerifier.parse(GO_PUBLIC)
    assert SignedNote.parse(f"{GO_TEXT}\n{GO_LINE}").filter_keys_that_signed([key]) == [key]


def test_the_key_of_a_public_log_is_read() -> None:
    assert NoteVerifier.parse(SUM_GOLANG_ORG).name == "sum.golang.org"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "a+b",
        GO_PUBLIC.replace("c74f", "c74e"),
        GO_PUBLIC[:-4],
        GO_PUBLIC.replace("ARpc", "AhpC"),
        " spaced+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
    ],
)
def test_a_key_with_a_wrong_character_is_refused(key: str) -> None:
    with pytest.raises(NoteError):
        NoteVerifier.parse(key)


def test_a_broken_private_key_is_not_told() -> None:
    with pytest.raises(NoteError) as refusal:
        NoteSigner.parse(GO_PRIVATE.replace("c74f", "c74e"))
    assert "AYEKFALV" not in str(refusal.value)


def test_another_text_is_not_what_was_signed() -> None:
    note = SignedNote.parse(f"{GO_TEXT.replace('answer', 'problem')}\n{GO_LINE}")
    with pytest.raises(NoteError, match="signature of PeterNeumann is wrong"):
        note.filter_keys_that_signed([NoteVerifier.parse(GO_PUBLIC)])


def test_signatures_of_strangers_are_passed_over() -> None:
    stranger = NoteSigner.generate_note_signer("stranger")
    note = SignedNote.parse(stranger.sign_note(GO_TEXT) + GO_LINE)
    key = NoteVerifier.parse(GO_PUBLIC)
    assert note.filter_keys_that_signed([key]) == [key]
    assert SignedNote.parse(stranger.sign_note(GO_TEXT)).filter_keys_that_signed([key]) == []


@pytest.mark.parametrize(
    "note",
    [
        "",
        "no signature\n",
        "text\n\nnot a line\n",
        "text\n\n— name !!!\n",
        f"te\tab\n\n{GO_LINE}",
        f"text\n\n{GO_LINE}"[:-1],
        f"text\n\n{GO_LINE * 65}",
        "x" * 70_000 + f"\n\n{GO_LINE}",
    ],
)
def test_what_is_no_note_is_refused(note: str) -> None:
    with pytest.raises(NoteError):
        SignedNote.parse(note)


def test_a_checkpoint_is_read_as_it_is_written() -> None:
    checkpoint = LogCheckpoint("example.com/behind-the-sofa", 20852163, bytes(range(32)))
    assert LogCheckpoint.parse(checkpoint.checkpoint_text) == checkpoint
    assert LogCheckpoint.parse(checkpoint.checkpoint_text + "an extension line\n") == checkpoint
    for wrong in (
        "",
        "a\n",
        "a\n01\nAA==\n",
        "a\n1\nAA==\n",
        "\n1\n" + "A" * 44 + "\n",
        f"a\n-1\n{'A' * 43}=\n",
    ):
        with pytest.raises(NoteError):
            LogCheckpoint.parse(wrong)


def test_a_witness_signs_the_time_with_the_text() -> None:
    private = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)
    witness = NoteVerifier("witness.example/w1", COSIGNATURE, private.public_key().public_bytes_raw())
    text = LogCheckpoint("log.example", 5, b"\x01" * 32).checkpoint_text
    signed = private.sign(f"cosignature/v1\ntime 1679315147\n{text}".encode())
    line = format_note_signature_line(witness, (1679315147).to_bytes(8) + signed)
    note = SignedNote.parse(f"{text}\n{line}")
    assert note.filter_keys_that_signed([NoteVerifier.parse(witness.public_key_text)]) == [witness]
    later = format_note_signature_line(witness, (1679315148).to_bytes(8) + signed)
    with pytest.raises(NoteError):
        SignedNote.parse(f"{text}\n{later}").filter_keys_that_signed([witness])


def test_notes_that_stand_one_after_another_are_told_apart() -> None:
    signer = NoteSigner.generate_note_signer("a")
    notes = [signer.sign_note(LogCheckpoint("a", size, b"\0" * 32).checkpoint_text) for size in (1, 2)]
    assert split_signed_notes("".join(note + "\n" for note in notes)) == notes
    assert split_signed_notes(notes[0]) == notes[:1]
    assert split_signed_notes("") == []


def test_a_proof_file_has_the_lines_of_its_standard() -> None:
    note = NoteSigner.generate_note_signer("a").sign_note(LogCheckpoint("a", 2, b"\0" * 32).checkpoint_text)
    text = InclusionProof(1, [b"\x02" * 32], note, b"entry").proof_file_text
    sibling = base64.b64encode(b"\x02" * 32).decode()
    assert text == f"c2sp.org/tlog-proof@v1\nextra ZW50cnk=\nindex 1\n{sibling}\n\n{note}"
