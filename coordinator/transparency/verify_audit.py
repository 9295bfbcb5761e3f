#!/usr/bin/env python3
"""Verify a proof or an export of a Signalbox audit log, without Signalbox and without a network.

    python verify_audit.py FILE --key 'name+hash+base64' [--witness 'name+hash+base64' …]

FILE is a proof of one entry (.tlog-proof) or an export of the whole log (NDJSON). KEY is the log's public key as you
noted it when you trusted it (page Audit log, Verify). Needs Python 3.9 or newer and the package `cryptography`.

A proof that holds shows: the entry printed here was in the log when the holder of the key signed the checkpoint, and
nothing in it was changed since. A witness's signature shows that somebody else saw the same log at the printed time.
Formats: RFC 6962 hashes, c2sp.org/signed-note, c2sp.org/tlog-checkpoint, c2sp.org/tlog-proof@v1. Exit code 0: it holds.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import sys
from datetime import datetime, timezone
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class InvalidEvidence(Exception):
    """The proof or export is not valid; the text says why."""


def sha256_digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidEvidence(f"This is not base64: {text[:60]!r}.") from None


LOG, WITNESS = 1, 4  # kinds of keys, as c2sp.org/signed-note numbers them
NUMBER = re.compile("0|[1-9][0-9]{0,18}")


class PublicKey:
    """A public key of this kind: of a log (LOG) or of a witness (WITNESS)."""

    def __init__(self, text: str, kind: int) -> None:
        parts = text.strip().split("+", 2)
        data = from_base64(parts[2]) if len(parts) == 3 else b""
        if len(data) != 33 or data[0] not in (LOG, WITNESS) or not re.fullmatch(r"\S+", parts[0]):
            raise InvalidEvidence("A key has the form name+hash+base64 and is an Ed25519 key.")
        if data[0] != kind:
            raise InvalidEvidence(
                "--key takes the key of a log, and this is one of a witness."
                if kind == LOG
                else "--witness takes the key of a witness, and this is one of a log."
            )
        self.name, self.kind, self.public = parts[0], data[0], data[1:]
        self.id = sha256_digest(self.name.encode() + b"\n" + data)[:4]
        if self.id.hex() != parts[1]:
            raise InvalidEvidence("The key's hash does not fit the key: a character may be wrong.")

    def verify_signature_and_describe_time(self, text: str, signature: bytes) -> str:
        """Raise InvalidEvidence unless the signature is this key's over the text; return when a witness signed."""
        message, at = text.encode(), 0
        if self.kind == WITNESS:
            at = int.from_bytes(signature[:8], "big")
            message, signature = f"cosignature/v1\ntime {at}\n{text}".encode(), signature[8:]
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except InvalidSignature:
            raise InvalidEvidence(f"The signature of {self.name} is wrong.") from None
        if self.kind == LOG:
            return ""
        try:
            when = datetime.fromtimestamp(at, timezone.utc)  # noqa: UP017 - Python 3.9
        except (ValueError, OverflowError, OSError):
            raise InvalidEvidence(
                f"The witness {self.name} has signed for a time that there is not."
            ) from None
        return f" at {when:%Y-%m-%d %H:%M:%S} UTC"


def verify_and_parse_signed_checkpoint(
    note: str, log_key: PublicKey, witnesses: list[PublicKey]
) -> tuple[int, bytes, list[str]]:
    """Return the number of entries, the root, and who has signed, in words. Raises InvalidEvidence."""
    text, gap, lines = note.rpartition("\n\n")
    if not gap:
        raise InvalidEvidence("The checkpoint has no signatures.")
    text += "\n"
    parts = text.split("\n")
    if len(parts) < 4 or parts[0] != log_key.name or not NUMBER.fullmatch(parts[1]):
        raise InvalidEvidence(f"This is not a checkpoint of the log {log_key.name}.")
    signed = {}  # by key, not by its name: a witness may be called like the log, or like another witness
    for line in lines.rstrip("\n").split("\n"):
        mark, _, rest = line.partition(" ")
        name, gap, data = rest.partition(" ")
        if mark != "\u2014" or not gap:
            raise InvalidEvidence(f"This is not a signature line: {line[:60]!r}.")
        raw = from_base64(data)
        for key in (log_key, *witnesses):
            if (name, raw[:4]) == (key.name, key.id):
                signed[key] = (
                    f"{escape_unprintable_text(key.name)}{key.verify_signature_and_describe_time(text, raw[4:])}"
                )
    if log_key not in signed:
        raise InvalidEvidence("The log's key has not signed this checkpoint.")
    for key in witnesses:
        if key not in signed:
            raise InvalidEvidence(f"The witness {key.name} has not signed this checkpoint.")
    return int(parts[1]), from_base64(parts[2]), list(signed.values())


def root_from_inclusion_path(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """Return the root that an inclusion proof leads to (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        raise InvalidEvidence("The entry's number is not in the checkpoint's tree.")
    if any(len(path_hash) != 32 for path_hash in (leaf, *path)):
        raise InvalidEvidence("The proof holds something that is not a hash of 32 bytes.")
    low, high, node_hash = index, size - 1, leaf
    for sibling in path:
        if high == 0:
            raise InvalidEvidence("The proof is too long.")
        if low & 1 or low == high:
            node_hash = sha256_digest(b"\x01" + sibling + node_hash)
            while low and not low & 1:
                low, high = low >> 1, high >> 1
        else:
            node_hash = sha256_digest(b"\x01" + node_hash + sibling)
        low, high = low >> 1, high >> 1
    if high:
        raise InvalidEvidence("The proof is too short.")
    return node_hash


def root_from_complete_subtrees(peaks: list[bytes]) -> bytes:
    """Return the root from the complete subtrees, largest first."""
    if not peaks:
        return sha256_digest(b"")
    root_hash = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root_hash = sha256_digest(b"\x01" + peak + root_hash)
    return root_hash


def escape_unprintable_text(text: str) -> str:
    """Return a text in which nothing can draw over the lines of this program: other signs are escaped."""
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )


def format_escaped_json(value: object) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=2).split("\n")
    return "\n".join(escape_unprintable_text(line) for line in lines)


def verified_audit_entry_summary_pairs(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """Return who did what when, and what exactly was judged, each as a name and a text. Raises InvalidEvidence."""
    columns = (
        ("Who", "actor_id"), ("What", "event_type"), ("Result", "result"), ("When", "timestamp"),
        ("About", "target_id"), ("Reason", "reason"),
    )  # fmt: skip
    summary_lines = [(name, str(entry[column])) for name, column in columns if entry.get(column) is not None]
    metadata = entry["metadata"] if isinstance(entry.get("metadata"), dict) else {}
    judged = metadata.get("judged")
    if isinstance(judged, dict) and "too_long" not in judged:
        packed = json.dumps(judged, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        if metadata.get("judged_sha256") != sha256_digest(packed.encode()).hex():
            raise InvalidEvidence(
                "The entry is in the log, but its judged_sha256 is not the digest of what it shows as judged."
            )
        summary_lines += [
            ("Tool", str(judged[name])) for name in ("tool_name",) if judged.get(name) is not None
        ]
        if judged.get("tool_input") is not None:
            summary_lines.append(("Input", json.dumps(judged["tool_input"], ensure_ascii=False)))
    if entry.get("written_by") != "signalbox":
        summary_lines.append(
            ("Note", "Another program wrote this row. The proof shows only that it was there.")
        )
    return summary_lines


def require_valid_proof_and_print(text: str, log_key: PublicKey, witnesses: list[PublicKey]) -> None:
    head, _, note = text.partition("\n\n")
    lines = head.split("\n")
    if lines[0] != "c2sp.org/tlog-proof@v1" or not lines[1].startswith("extra "):
        raise InvalidEvidence("This is not a proof file of Signalbox.")
    entry = from_base64(lines[1][6:])
    if not lines[2].startswith("index ") or not NUMBER.fullmatch(lines[2][6:]):
        raise InvalidEvidence("The proof does not say which entry it is for.")
    index, path = int(lines[2][6:]), [from_base64(line) for line in lines[3:]]
    size, root, signers = verify_and_parse_signed_checkpoint(note, log_key, witnesses)
    if root_from_inclusion_path(sha256_digest(b"\x00" + entry), index, size, path) != root:
        raise InvalidEvidence("The entry is not in the log that was signed: one of them was changed.")
    values = json.loads(entry)
    print(f"The proof is valid. Entry {index} of {size:,}:\n")
    for name, summary_text in verified_audit_entry_summary_pairs(values):
        print(f"  {name + ':':<12}{escape_unprintable_text(summary_text)}")
    print("\nThe whole entry:\n")
    for name, value in values.items():
        if value is not None:
            print(
                f"  {escape_unprintable_text(name)}:"
                f" {escape_unprintable_text(value) if isinstance(value, str) else format_escaped_json(value)}"
            )
    print("\nSigned by " + ", ".join(signers) + ".")


def require_valid_export_and_print(lines: list[str], log_key: PublicKey, witnesses: list[PublicKey]) -> None:
    first = json.loads(lines[0])
    if first.get("signalbox_audit_export") != 1:
        raise InvalidEvidence("This is not an export of an audit log.")
    size, root, signers = verify_and_parse_signed_checkpoint(first["checkpoint"], log_key, witnesses)
    peaks: list[bytes] = []
    with_text = 0
    for number, line in enumerate(lines[1:]):
        leaf = json.loads(line)
        if leaf.get("index") != number:
            raise InvalidEvidence(f"Entry {number} is missing in the export.")
        if "entry" in leaf:
            with_text += 1
            peaks.append(sha256_digest(b"\x00" + leaf["entry"].encode()))
        else:
            peaks.append(bytes.fromhex(leaf["hash"]))
            if len(peaks[-1]) != 32:
                raise InvalidEvidence(f"The hash of entry {number} does not have 32 bytes.")
        for _ in range(((number + 1) & -(number + 1)).bit_length() - 1):
            right, left_peak = peaks.pop(), peaks.pop()
            peaks.append(sha256_digest(b"\x01" + left_peak + right))
    if len(lines) - 1 != size:
        raise InvalidEvidence(
            f"The checkpoint covers {size:,} entries, and the export has {len(lines) - 1:,}."
        )
    if root_from_complete_subtrees(peaks) != root:
        raise InvalidEvidence(
            "The entries are not those that were signed: something was changed, added, removed or moved."
        )
    print(
        f"The export is valid: {size:,} entries, {with_text:,} of them with their text. Signed by {', '.join(signers)}."
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--key", required=True, help="the log's public key, name+hash+base64")
    parser.add_argument(
        "--witness", action="append", default=[], help="a witness's key that must have signed too"
    )
    args = parser.parse_args()
    try:
        log_key, witnesses = PublicKey(args.key, LOG), [PublicKey(text, WITNESS) for text in args.witness]
        if len({key.public for key in (log_key, *witnesses)}) != len(witnesses) + 1:
            raise InvalidEvidence(
                "Two of these keys are one: nobody is a witness of their own log, or two witnesses."
            )
        with open(args.file, encoding="utf-8", newline="") as file:
            text = file.read()
        if text.startswith("c2sp.org/tlog-proof@v1"):
            require_valid_proof_and_print(text, log_key, witnesses)
        else:
            require_valid_export_and_print(text.rstrip("\n").split("\n"), log_key, witnesses)
    except InvalidEvidence as problem:
        print(f"Not valid. {problem}", file=sys.stderr)
        return 1
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        print(f"The file cannot be read: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
