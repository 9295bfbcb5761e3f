"""Signed notes, checkpoints, cosignatures and proof files, as C2SP describes them.

Formats: c2sp.org/signed-note, c2sp.org/tlog-checkpoint, c2sp.org/tlog-cosignature (Ed25519), c2sp.org/tlog-proof@v1,
and the key texts of Go's golang.org/x/mod/sumdb/note. Foreign notes are bounded: MOST_BYTES, MOST_SIGNATURES.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ED25519, COSIGNATURE = 0x01, 0x04
MOST_BYTES = 64 * 1024
MOST_SIGNATURES = 64
PROOF_HEADER = "c2sp.org/tlog-proof@v1"
_NAME = re.compile(r"[^\s+]+")
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")


class NoteError(Exception):
    """A note, key or proof file cannot be read or trusted. The text says why."""


def decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NoteError(f"This is not base64: {text[:60]!r}.") from None


def encode_base64(data: bytes) -> str:
    """Return standard base64."""
    return base64.b64encode(data).decode()


def compute_note_key_id(name: str, kind: int, public: bytes) -> bytes:
    """Return the four bytes by which signatures name their key."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public).digest()[:4]


@dataclass(frozen=True, slots=True)
class NoteVerifier:
    """A public key: `kind` is ED25519 for a log, COSIGNATURE for a witness; `public` has 32 bytes."""

    name: str
    kind: int
    public: bytes

    @property
    def id(self) -> bytes:
        return compute_note_key_id(self.name, self.kind, self.public)

    @property
    def public_key_text(self) -> str:
        """The key as people exchange it: `name+hash+base64`."""
        return f"{self.name}+{self.id.hex()}+{encode_base64(bytes([self.kind]) + self.public)}"

    @classmethod
    def parse(cls, text: str) -> NoteVerifier:
        """Read `name+hash+base64`. Raises NoteError."""
        parts = text.strip().split("+", 2)
        if len(parts) != 3 or not _NAME.fullmatch(parts[0]):
            raise NoteError("A public key has the form name+hash+base64.")
        data = decode_base64(parts[2])
        if len(data) != 33 or data[0] not in {ED25519, COSIGNATURE}:
            raise NoteError("Only Ed25519 keys of logs (type 1) and of witnesses (type 4) are read here.")
        verifier = cls(parts[0], data[0], data[1:])
        if verifier.id.hex() != parts[1]:
            raise NoteError("The key's hash does not fit the key: a character may be wrong.")
        return verifier

    def verify_signature(self, text: str, signature: bytes) -> None:
        """Raise NoteError unless `signature` (without the key's id) is this key's over the note's text."""
        message, bare = text.encode(), signature
        if self.kind == COSIGNATURE:
            if len(signature) != 72:
                raise NoteError(f"The cosignature of {self.name} has the wrong length.")
            when, bare = int.from_bytes(signature[:8]), signature[8:]
            message = f"cosignature/v1\ntime {when}\n{text}".encode()
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(bare, message)
        except InvalidSignature:
            raise NoteError(f"The signature of {self.name} is wrong.") from None


@dataclass(frozen=True, slots=True)
class NoteSigner:
    """A private key of a log; `seed` has 32 bytes."""

    name: str
    seed: bytes

    @classmethod
    def generate_note_signer(cls, name: str) -> NoteSigner:
        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public_verifier(self) -> NoteVerifier:
        return NoteVerifier(self.name, ED25519, self.private_key.public_key().public_bytes_raw())

    @property
    def private_key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @property
    def private_key_text(self) -> str:
        """The key as its file holds it: `PRIVATE+KEY+name+hash+base64`."""
        return f"PRIVATE+KEY+{self.name}+{self.public_verifier.id.hex()}+{encode_base64(bytes([ED25519]) + self.seed)}"

    @classmethod
    def parse(cls, text: str) -> NoteSigner:
        """Read `PRIVATE+KEY+name+hash+base64`. Raises NoteError, which never contains the key."""
        parts = text.strip().split("+", 4)
        if len(parts) != 5 or parts[:2] != ["PRIVATE", "KEY"]:
            raise NoteError("A private key has the form PRIVATE+KEY+name+hash+base64.")
        try:
            data = base64.b64decode(parts[4], validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if len(data) != 33 or data[0] != ED25519:
            raise NoteError("The private key is not an Ed25519 key.")
        signer = cls(parts[2], data[1:])
        if signer.public_verifier.id.hex() != parts[3]:
            raise NoteError("The private key's hash does not fit the key.")
        return signer

    def sign_note(self, text: str) -> str:
        """Return the signed note: the text, an empty line, one signature line."""
        return f"{text}\n{format_note_signature_line(self.public_verifier, self.private_key.sign(text.encode()))}"


def format_note_signature_line(by: NoteVerifier, signature: bytes) -> str:
    """Return one line of a note's signatures, with its line break."""
    return f"— {by.name} {encode_base64(by.id + signature)}\n"


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line: who is said to have signed, and with what."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def signature_as_note_line(self) -> str:
        return f"— {self.name} {encode_base64(self.key_id + self.signature)}\n"


def parse_note_signatures(lines: str) -> list[NoteSignature]:
    """Read signature lines. Raises NoteError."""
    signatures = []
    for line in lines.splitlines():
        mark, _, rest = line.partition(" ")
        name, _, data = rest.partition(" ")
        raw = decode_base64(data) if mark == "—" and _NAME.fullmatch(name) else b""
        if len(raw) <= 4:
            raise NoteError(f"This is not a signature line: {line[:60]!r}.")
        signatures.append(NoteSignature(name, raw[:4], raw[4:]))
    if not 0 < len(signatures) <= MOST_SIGNATURES:
        raise NoteError(f"A note has 1 to {MOST_SIGNATURES} signatures, not {len(signatures)}.")
    return signatures


@dataclass(frozen=True, slots=True)
class SignedNote:
    """A signed note: its text with the last line break, and its signatures, not verified yet."""

    text: str
    signatures: list[NoteSignature]

    @classmethod
    def parse(cls, note: str) -> SignedNote:
        """Split a note. Raises NoteError."""
        if len(note.encode()) > MOST_BYTES:
            raise NoteError(f"A note longer than {MOST_BYTES // 1024} KiB is not read.")
        text, gap, lines = note.rpartition("\n\n")
        if not gap or not lines.endswith("\n") or any(ord(c) < 0x20 and c != "\n" for c in note):
            raise NoteError("This is not a signed note: text, an empty line, signature lines.")
        return cls(text + "\n", parse_note_signatures(lines))

    def filter_keys_that_signed(self, trusted: Iterable[NoteVerifier]) -> list[NoteVerifier]:
        """Return the trusted keys that have signed. Raises NoteError where a signature of one of them is wrong."""
        signing_keys = []
        for key in trusted:
            for signature in self.signatures:
                if (signature.name, signature.key_id) == (key.name, key.id):
                    key.verify_signature(self.text, signature.signature)
                    signing_keys.append(key)
                    break
        return signing_keys


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """A log's state: its first `size` leaves have this root (32 bytes). `origin` names the log."""

    origin: str
    size: int
    root: bytes

    @property
    def checkpoint_text(self) -> str:
        return f"{self.origin}\n{self.size}\n{encode_base64(self.root)}\n"

    @classmethod
    def parse(cls, text: str) -> LogCheckpoint:
        """Read a note's text. Raises NoteError."""
        lines = text.split("\n")
        if len(lines) < 4 or not lines[0] or not _SIZE.fullmatch(lines[1]):
            raise NoteError("This is not a checkpoint: a name, a number of leaves, a root hash.")
        root = decode_base64(lines[2])
        if len(root) != 32:
            raise NoteError("A root hash has 32 bytes.")
        return cls(lines[0], int(lines[1]), root)


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """A proof file: leaf `index` is in the checkpoint's tree. `extra` here is the entry itself."""

    index: int
    path: Sequence[bytes]
    note: str
    extra: bytes = b""

    @property
    def proof_file_text(self) -> str:
        """The file's text (extension .tlog-proof)."""
        extra = [f"extra {encode_base64(self.extra)}"] if self.extra else []
        lines = [
            PROOF_HEADER,
            *extra,
            f"index {self.index}",
            *(encode_base64(path_hash) for path_hash in self.path),
        ]
        return "\n".join(lines) + "\n\n" + self.note


def split_signed_notes(text: str) -> list[str]:
    """Return the signed notes in a text, one after another, as in a file that each was appended to."""
    signed_notes: list[str] = []
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if lines and lines[-1].startswith("— ") and not line.startswith("— "):
            signed_notes.append("".join(lines))
            lines = []
        if lines or line.strip():
            lines.append(line)
    return [*signed_notes, "".join(lines)] if lines else signed_notes
