"""Places elsewhere that checkpoints are sent to, so that whoever owns the database cannot change those, too.

SIGNALBOX_AUDIT_CHECKPOINTS names them, separated by commas:

    file:/path              each note is appended to the file
    git:/path               the file `checkpoint` of that work tree is committed, and pushed where it has an upstream
    https://host/path       each note is posted there (text/plain); the answer must be 2xx
    mailto:name@host        the newest note is mailed once a day
    witness:KEY https://…   add-checkpoint of c2sp.org/tlog-witness; KEY is its name+hash+base64
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import send_mail

from coordinator.lib import http_post
from coordinator.lib.network_words import describe_network_error
from coordinator.notifications import webhooks
from coordinator.transparency import merkle
from coordinator.transparency.notes import (
    COSIGNATURE,
    LogCheckpoint,
    NoteError,
    NoteVerifier,
    SignedNote,
    encode_base64,
    parse_note_signatures,
)
from coordinator.transparency.tree import LogTree

TIMEOUT = 15.0  # seconds for one place
ONCE_A_DAY = timedelta(hours=23)


class NotDelivered(Exception):
    """A place did not accept the checkpoint; says why in a few words."""


@dataclass(frozen=True, slots=True)
class CheckpointDestination:
    """One place of the setting. `send(note, since)` delivers and returns the note, with what a witness has added;
    `since` is the tree size that the place had last (0: none). Raises NotDelivered."""

    name: str
    send: Callable[[str, int], str]
    pace: timedelta = timedelta()
    is_witness: bool = False


def load_checkpoint_destinations() -> list[CheckpointDestination]:
    """Return the places of the setting, witnesses first: the others are then sent the cosigned note."""
    return sorted(
        (parse_checkpoint_destination(text) for text in settings.AUDIT_CHECKPOINTS),
        key=lambda one: not one.is_witness,
    )


def parse_checkpoint_destination(text: str) -> CheckpointDestination:
    """Return the place that a part of the setting names. Raises ValueError."""
    kind, _, rest = text.partition(":")
    if kind == "file" and rest:
        return CheckpointDestination(text, lambda note, _since: append_note_to_file(Path(rest), note))
    if kind == "git" and rest:
        return CheckpointDestination(text, lambda note, _since: commit_and_push_note(Path(rest), note))
    if kind == "mailto" and "@" in rest:
        return CheckpointDestination(
            text, lambda note, _since: mail_checkpoint_note(rest, note), pace=ONCE_A_DAY
        )
    if kind in {"http", "https"}:
        return CheckpointDestination(
            describe_url_without_secrets(text), lambda note, _since: post_checkpoint_note(text, note)
        )
    if kind == "witness":
        key, _, url = rest.partition(" ")
        try:
            witness = NoteVerifier.parse(key)
            if witness.kind != COSIGNATURE:
                raise NoteError("This is a log's key. A witness has one of type 4.")
        except NoteError as problem:
            raise ValueError(f"SIGNALBOX_AUDIT_CHECKPOINTS, {text[:60]!r}: {problem}") from None
        return CheckpointDestination(
            f"witness:{witness.name}",
            lambda note, since: request_and_append_cosignature(witness, url.strip().rstrip("/"), note, since),
            is_witness=True,
        )
    raise ValueError(
        f"SIGNALBOX_AUDIT_CHECKPOINTS has a part that is not understood: {text[:60]!r}. Use file:, git:, mailto:, "
        "https: or witness:."
    )


def describe_url_without_secrets(url: str) -> str:
    """Return how a URL is named on pages and in logs: its path and what follows may hold a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname} ({hashlib.sha256(url.encode()).hexdigest()[:8]})"


def append_note_to_file(path: Path, note: str) -> str:
    """Append to the file itself, never to what a link in its place leads to."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(note + "\n")
    except OSError as problem:
        raise NotDelivered(problem.strerror or "the file cannot be written") from None
    return note


def commit_and_push_note(folder: Path, note: str) -> str:
    size = LogCheckpoint.parse(SignedNote.parse(note).text).size
    try:
        with tempfile.NamedTemporaryFile("w", dir=folder, encoding="utf-8", delete=False) as file:
            file.write(note)
        Path(file.name).replace(folder / "checkpoint")  # a link in its place is replaced, not followed
        run_git_in_checkpoint_folder(folder, "add", "checkpoint")
        if run_git_in_checkpoint_folder(folder, "status", "--porcelain", "checkpoint"):
            run_git_in_checkpoint_folder(
                folder, "commit", "--quiet", "--message", f"Checkpoint of {size} audit entries", "checkpoint"
            )
        if run_git_in_checkpoint_folder(folder, "for-each-ref", "--format=%(upstream)", "refs/heads"):
            run_git_in_checkpoint_folder(folder, "push", "--quiet")
    except subprocess.CalledProcessError as problem:  # what git says may hold the address with its password
        raise NotDelivered(
            f"git ended with {problem.returncode}; run it by hand in {folder} to see why"
        ) from None
    except (OSError, subprocess.SubprocessError) as problem:
        raise NotDelivered(f"git cannot be run: {type(problem).__name__}") from None
    return note


def run_git_in_checkpoint_folder(folder: Path, *words: str) -> str:
    """Run git without a terminal, without the folder's hooks, and without our own environment's secrets."""
    settings_of_ours = (
        "user.name=Signalbox", "user.email=signalbox@localhost", "commit.gpgsign=false",
        "core.hooksPath=/dev/null", "core.fsmonitor=false",
    )  # fmt: skip
    options = [part for setting in settings_of_ours for part in ("-c", setting)]
    env = {name: os.environ[name] for name in ("PATH", "HOME", "SSH_AUTH_SOCK") if name in os.environ}
    done = subprocess.run(  # noqa: S603 - our words, and a folder that the administrator named
        ["git", *options, "-C", str(folder), *words],  # noqa: S607
        capture_output=True, text=True, timeout=TIMEOUT, check=True, stdin=subprocess.DEVNULL,
        env=env | {"GIT_TERMINAL_PROMPT": "0"},
    )  # fmt: skip
    return done.stdout.strip()


def mail_checkpoint_note(address: str, note: str) -> str:
    if not settings.EMAIL_HOST:
        raise NotDelivered("no mail server is set (SIGNALBOX_SMTP_HOST)")
    size = LogCheckpoint.parse(SignedNote.parse(note).text).size
    text = f"Keep this. It proves what the audit log's first {size:,} entries are.\n\n{note}"
    try:
        send_mail(f"Audit checkpoint of {size:,} entries", text, None, [address])
    except OSError as problem:
        raise NotDelivered(f"the mail server {describe_network_error(problem)}") from None
    return note


def post_checkpoint_note(url: str, note: str) -> str:
    try:
        status = webhooks.post_to_checked_address(
            url, note.encode(), {"Content-Type": "text/plain; charset=utf-8"}
        )
    except (webhooks.WebhookAddressRefused, webhooks.WebhookUnreachable) as problem:
        raise NotDelivered(str(problem)) from None
    if not 200 <= status < 300:
        raise NotDelivered(f"answered {status}")
    return note


def request_and_append_cosignature(witness: NoteVerifier, url: str, note: str, since: int) -> str:
    """Have a witness sign; where it knows another size than we thought, once more from that."""
    read = SignedNote.parse(note)
    if witness in read.filter_keys_that_signed([witness]):
        return note
    checkpoint = LogCheckpoint.parse(read.text)
    status, answer = request_witness_response_to_checkpoint(
        url, checkpoint, note, min(since, checkpoint.size)
    )
    if status == 409 and answer.strip().isdigit() and int(answer) <= checkpoint.size:
        status, answer = request_witness_response_to_checkpoint(url, checkpoint, note, int(answer))
    if status != 200:
        raise NotDelivered(f"answered {status}")
    try:
        for signature in parse_note_signatures(answer):
            if (signature.name, signature.key_id) == (witness.name, witness.id):
                witness.verify_signature(read.text, signature.signature)
                return note + signature.signature_as_note_line
    except NoteError as problem:
        raise NotDelivered(str(problem)) from None
    raise NotDelivered("the answer has no signature of this witness")


def request_witness_response_to_checkpoint(
    url: str, checkpoint: LogCheckpoint, note: str, since: int
) -> tuple[int, str]:
    path = merkle.consistency_path(LogTree().compute_subtree_hash, since, checkpoint.size)
    lines = [f"old {since}", *(encode_base64(path_hash) for path_hash in path)]
    body = "\n".join(lines) + "\n\n" + note
    try:
        return http_post.post_bytes(f"{url}/add-checkpoint", body.encode(), {}, seconds=TIMEOUT)
    except (OSError, ValueError) as problem:
        raise NotDelivered(describe_network_error(problem)) from None
