"""Origins stand in databases: the same parts give the same for ever."""

from __future__ import annotations

import hashlib
import json

import pytest

from coordinator.dialects import hooks


@pytest.mark.parametrize(
    "parts", [("a", 1, None), ('ü\u2028"\\\x00\x7f😀', -5), (), (True, 1.5), ({"b": 1, "a": [None]}, "x")]
)
def test_an_origin_is_the_digest_of_its_parts_as_json(parts: tuple[object, ...]) -> None:
    packed = json.dumps(parts, sort_keys=True, default=str).encode()
    assert hooks.make_event_origin(*parts) == f"cc:{hashlib.sha256(packed).hexdigest()[:40]}"
