"""The public vectors: Merkle proofs for our tree and for verify_audit.py, canonical JSON for our entries."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from coordinator.models.fields import dump_compact_json
from coordinator.transparency import entries, merkle, verify_audit

DATA = Path(__file__).parent.parent / "data"


def cases(file: str) -> list[Any]:
    found = [json.loads(line) for line in (DATA / file).read_text().splitlines()]
    return [pytest.param(one, id=one["name"]) for one in found]


def raw(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def leads_to_root(case: dict[str, Any]) -> bool:
    """Say what the program for strangers makes of an inclusion proof."""
    path = [raw(one) for one in case["proof"]]
    try:
        found = verify_audit.root_from_inclusion_path(
            raw(case["leafHash"]), case["leafIdx"], case["treeSize"], path
        )
    except verify_audit.InvalidEvidence:
        return False
    return found == raw(case["root"])


@pytest.mark.parametrize("case", cases("merkle/inclusion.ndjson"))
def test_inclusion_proofs(case: dict[str, Any]) -> None:
    path = [raw(one) for one in case["proof"]]
    given = (raw(case["leafHash"]), case["leafIdx"], case["treeSize"], path, raw(case["root"]))
    assert leads_to_root(case) is not case["wantErr"]
    if case["wantErr"]:
        with pytest.raises(merkle.ProofError):
            merkle.require_valid_inclusion_proof(*given)
    else:
        merkle.require_valid_inclusion_proof(*given)


@pytest.mark.parametrize("case", cases("merkle/consistency.ndjson"))
def test_consistency_proofs(case: dict[str, Any]) -> None:
    path = [raw(one) for one in case["proof"]]
    given = (case["size1"], case["size2"], path, raw(case["root1"]), raw(case["root2"]))
    if case["wantErr"]:
        with pytest.raises(merkle.ProofError):
            merkle.require_valid_consistency_proof(*given)
    else:
        merkle.require_valid_consistency_proof(*given)


@pytest.mark.parametrize("case", cases("rfc8785/texts.ndjson"))
def test_canonical_json(case: dict[str, Any]) -> None:
    value = json.loads(case["input"])
    assert entries.encode_rfc8785_json(value) == rfc8785.dumps(value) == case["output"].encode()


@pytest.mark.parametrize("line", (DATA / "rfc8785/numbers.txt").read_text().splitlines())
def test_canonical_numbers(line: str) -> None:
    bits, written = line.split()
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert entries.encode_rfc8785_json(number) == written.encode()


def test_what_is_written_the_quick_way_is_written_as_the_library_would() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10000), *range(0x1F600, 0x1F610)]))
    for value in (
        every,
        {
            "b": [1, -1, 0, 2**53 - 1, -(2**53) + 1, True, False, None, "", {}, []],
            "a": {"~": every, "\x00": "", "Z": 1},
        },
        {"\U0001f600": 1, "\ufb33": 2, "a": 3},
    ):
        assert entries.encode_rfc8785_json(value) == rfc8785.dumps(value)
    for refused in (2**53, "\ud800", {"a": "\udfff"}, float("nan")):
        with pytest.raises(rfc8785.CanonicalizationError):
            entries.encode_rfc8785_json(refused)


def test_the_metadata_of_an_entry_stands_in_canonical_form() -> None:
    stored = dump_compact_json({"\u20ac": "x", "cost": 4.5, "\r": [1e30, 0.002]})
    entry = entries.encode_canonical_audit_entry(
        dict.fromkeys(entries.COLUMNS) | {"metadata": stored}, by_signalbox=True
    )
    assert '"metadata":{"\\r":[1e+30,0.002],"cost":4.5,"\u20ac":"x"}'.encode() in entry
