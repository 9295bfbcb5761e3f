"""Digests of what may hold secrets are whole, keyed, and equal for equal values alone."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.secrets.digests import keyed_digest


def test_equal_values_share_a_whole_digest() -> None:
    one = keyed_digest("subject", "Bash", {"command": "ls", "timeout": 5})

    assert one == keyed_digest("subject", "Bash", {"timeout": 5, "command": "ls"})
    assert len(one) == 64


@pytest.mark.parametrize(
    ("one", "other"),
    [(["ab", "c"], ["a", "bc"]), (["1"], [1]), ([True], [1]), ([None], []), ([{"a": "\r"}], [{"a": "\n"}])],
    ids=str,
)
def test_different_values_have_different_digests(one: list[Any], other: list[Any]) -> None:
    assert keyed_digest("subject", *one) != keyed_digest("subject", *other)


def test_a_digest_says_nothing_to_another_installation_or_purpose(settings: Any) -> None:
    here = keyed_digest("subject", "hunter22")
    assert keyed_digest("other", "hunter22") != here

    settings.SECRET_KEY = "another installation's key, as long as it must be"
    assert keyed_digest("subject", "hunter22") != here
