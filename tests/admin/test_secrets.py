from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.secrets import (
    MASK,
    is_secret_key_or_url_password,
    is_unchanged_mask,
    mask_command_arguments,
    mask_value_of_secret_key,
)

CASES = json.loads((Path(__file__).parents[1] / "data" / "conformance" / "administration.json").read_text())
KEYS = CASES["secret_masking"]["env_keys"]


@pytest.mark.parametrize("case", KEYS, ids=lambda case: case["key"])
def test_recorded_keys(case: dict[str, Any]) -> None:
    assert is_secret_key_or_url_password(case["key"]) is case["expected_masked"]


@pytest.mark.parametrize(
    "key", ["apiKey", "auth.token", "OPENAI_APIKEY", "AUTHTOKEN", "REDIS_URL", "db-pwd", "KEY2"]
)
def test_other_spellings_of_secrets(key: str) -> None:
    assert is_secret_key_or_url_password(key)


@pytest.mark.parametrize(
    "key",
    [
        "MAX_TOKENS",
        "maxTokens",
        "TOKEN_LIMIT",
        "TOKENIZER",
        "AUTHOR",
        "PWD",
        "ACCESS_LOG",
        "HOTKEY",
        "model",
        "",
    ],
)
def test_what_only_resembles_one(key: str) -> None:
    assert not is_secret_key_or_url_password(key)


def test_a_value_with_a_password_in_it_is_one_whatever_its_key() -> None:
    assert mask_value_of_secret_key("endpoint", "https://me:hunter2@example.org/x") == MASK
    assert (
        mask_value_of_secret_key("endpoint", "https://example.org:8080/@x") == "https://example.org:8080/@x"
    )


def test_nothing_is_shown_for_a_secret_that_is_not_set() -> None:
    assert mask_value_of_secret_key("API_KEY", "") == ""
    assert mask_value_of_secret_key("API_KEY", None) is None


@pytest.mark.parametrize(
    ("stored", "submitted", "kept"),
    [("s1", MASK, True), ("old", "***new", False), ("", MASK, False), (None, MASK, False), ("s1", "", False)],
)
def test_only_the_mask_itself_keeps_a_secret(stored: str | None, submitted: str, kept: bool) -> None:
    assert is_unchanged_mask("A_KEY", stored, submitted) is kept


def test_the_mask_is_an_ordinary_text_where_nothing_is_secret() -> None:
    assert not is_unchanged_mask("B", "x", MASK)


def test_secrets_among_arguments_are_masked() -> None:
    told = mask_command_arguments(["run", "--api-key", "s3cret", "--token=t0p", "API_KEY=x", "--port", "80"])
    assert told == ["run", "--api-key", MASK, "--token=***", "API_KEY=***", "--port", "80"]
