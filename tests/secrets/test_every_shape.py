"""No key of any known kind is stored in clear, whatever its random part is and wherever it stands."""

from __future__ import annotations

import json
import random
import re

import pytest

from coordinator.secrets import shapes, vendors
from coordinator.secrets.masking import SecretMasker, looks_random
from coordinator.secrets.shapes import SecretShape
from coordinator.secrets.vendors import VendorKeyPattern
from tests.secrets.made import text_of

MANY = 150
PLACES = ("Use {} now", "line\n{}\nline", "({})", "key={}&next=1")


def left_in_clear(texts: list[tuple[str, str]]) -> list[str]:
    """Return the secrets that are left of texts (text, its secret), as plain text or as JSON within it."""
    left = []
    for number, (text, secret) in enumerate(texts):
        said = PLACES[number % len(PLACES)].format(text)
        value = said if number % 8 < 4 else json.dumps({"stdout": said})
        stored = SecretMasker().mask_to_json([{"type": "text", "text": value}])
        if secret in str(stored):
            left.append(f"{value} gives {stored}")
    return left


def longest_piece(secret: str) -> str:
    """Return what of a secret stands in JSON as it is, and is long enough to be no chance."""
    return max(re.split(r"[\s\"'\\,|:>-]", secret), key=len)


@pytest.mark.parametrize("key", vendors.KEYS, ids=lambda key: f"{key.kind} {key.begins}")
def test_every_key_of_every_maker_is_masked(key: VendorKeyPattern) -> None:
    rng = random.Random(key.begins)
    keys = [text_of(f"(?:{key.begins})(?:{key.follows})", rng) for _ in range(MANY)]
    assert left_in_clear([(one, one) for one in keys]) == []


OTHERS = [
    shape for shape in (*shapes.KNOWN, *shapes.HEADERS) if shape.kind != "private key"
]  # see the corpus


@pytest.mark.parametrize("shape", OTHERS, ids=lambda shape: f"{shape.kind} {shape.mark}")
def test_every_other_shape_is_masked(shape: SecretShape) -> None:
    rng = random.Random(shape.pattern)
    texts = []
    for _ in range(MANY):
        text = text_of(shape.pattern, rng)
        found = re.match(shape.pattern, text)
        assert found, text
        secret = found.group(min(1, found.re.groups))
        if shape.kind != "bearer token" or looks_random(secret):  # after a word of English, a word may follow
            texts.append((text, longest_piece(secret)))
    assert left_in_clear(texts) == []


def test_project_keys_with_any_letters_are_masked() -> None:
    """Four in a hundred of them were stored: their mark knew no underscore."""
    rng = random.Random(1)
    keys = [text_of(f"sk-(?:proj|admin|svcacct)-{'[A-Za-z0-9_-]'}{{80}}", rng) for _ in range(1_000)]
    assert left_in_clear([(key, key) for key in keys]) == []
