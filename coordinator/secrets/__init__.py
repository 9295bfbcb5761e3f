"""Recognition of secrets among stored values, by their keys. Secret values are never shown.

A key is read as words (`DEEPSEEK_API_KEY`, `apiKey`, `auth.token` alike), so that MONKEY_COUNT is no key and
MAX_TOKENS no token. A value that carries a password inside an address is a secret whatever its key is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MASK = "***"

_PLACEHOLDER = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]{0,99}\}")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# A scheme begins a word and is short: otherwise a long value would be read again from each of its letters.
_ADDRESS_WITH_PASSWORD = re.compile(
    r"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,40}://[^\s/?#:@]*:[^\s/?#@]+@", re.IGNORECASE
)


def split_text_to_word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


SECRET_WORDS = split_text_to_word_set(
    "key keys token tokens secret secrets password passwords passwd passphrase pass pwd credential "
    "credentials creds authorization bearer jwt cookie cookies pin otp salt signature dsn"
)
# Written in one word, as in `authtoken`; `key` alone would catch monkeys and turkeys.
SECRET_ENDINGS = tuple(
    split_text_to_word_set(
        "apikey apikeys accesskey privatekey secretkey sshkey signingkey encryptionkey password "
        "passphrase secret token credential credentials"
    )
)
# Secrets only where nothing follows: AWS_ACCESS but not ACCESS_LOG, PROXY_AUTH but not AUTH_MODE.
SECRET_LAST = split_text_to_word_set("access auth")
# Their addresses usually carry a password or are themselves one.
SECRET_ADDRESSES = split_text_to_word_set(
    "database db postgres postgresql mysql mariadb mongo mongodb redis amqp rabbitmq broker webhook"
)
# Where these come last, or next to `tokens`, only a measure is meant: TOKEN_LIMIT, MAX_TOKENS.
MEASURES = split_text_to_word_set(
    "count limit limits length size budget ttl timeout expiry lifetime age rate usage enabled required"
)
AMOUNTS = split_text_to_word_set("max min num number total prompt completion input output context thinking")


def is_secret_key_or_url_password(key: str | None, value: str | None = None) -> bool:
    """Say whether a value of this name must never be shown. `value`: it may also hold an address with a password.

    `key` is None in rows of other programs: SQLite lets them leave out a part of the primary key.
    """
    if value is not None and _ADDRESS_WITH_PASSWORD.search(value):
        return True
    key_words = [word.lower() for word in _WORDS.findall(key or "")]
    if (
        not key_words or is_token_count_key_name(key_words) or key_words == ["pwd"]
    ):  # PWD alone is a working folder
        return False
    if key_words[-1] in SECRET_LAST or (
        key_words[-1] in {"url", "uri"} and SECRET_ADDRESSES & set(key_words)
    ):
        return True
    return any(word in SECRET_WORDS or word.endswith(SECRET_ENDINGS) for word in key_words)


def is_token_count_key_name(words: list[str]) -> bool:
    return words[-1] in MEASURES or (words[-1] == "tokens" and bool(AMOUNTS & set(words)))


def mask_value_of_secret_key(key: str | None, value: str | None) -> str | None:
    """Return `***` for a value that `is_secret_key_or_url_password` and is not empty, else the value as it is."""
    return MASK if value and is_secret_key_or_url_password(key, value) else value


def is_unchanged_mask(key: str, stored: str | None, submitted: str) -> bool:
    """Say whether `submitted` is only the mask of the secret in `stored`, sent back unchanged."""
    return submitted == MASK and mask_value_of_secret_key(key, stored) == MASK


def mask_server_secrets(servers: Any) -> Any:
    """Return an agent's MCP servers, by name, without secrets.

    Of `env` and `headers` the names stay, and values that are placeholders.
    """
    if not isinstance(servers, dict):
        return servers
    return {name: mask_secrets_of_one_server(server) for name, server in servers.items()}


def mask_secrets_of_one_server(server: Any) -> Any:
    if not isinstance(server, dict):
        return MASK
    shown_server: dict[str, Any] = {}
    for name, value in server.items():
        if name in {"env", "headers"}:
            shown_server[name] = mask_all_but_placeholder_values(value) if isinstance(value, dict) else MASK
        elif isinstance(value, list) and all(isinstance(list_item, str) for list_item in value):
            shown_server[name] = mask_command_arguments(value)
        elif isinstance(value, str):
            shown_server[name] = mask_value_of_secret_key(name, value)
        else:
            shown_server[name] = value if isinstance(value, bool | int | float | None) else MASK
    return shown_server


def mask_all_but_placeholder_values(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value if is_runner_variable_placeholder(value) else MASK for name, value in values.items()}


def is_runner_variable_placeholder(value: Any) -> bool:
    """Say whether a value is a name in braces that a runner replaces: `${AGENT_SESSION_ID}`."""
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value) is not None


def mask_command_arguments(arguments: Iterable[str]) -> list[str]:
    """Return a command's arguments without secrets: `--token=***`, and `***` for the one after `--token`."""
    shown_arguments: list[str] = []
    hide_next = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if hide_next:
            shown_arguments.append(MASK)
        elif equals:
            shown_arguments.append(f"{name}={mask_value_of_secret_key(name, value)}")
        else:
            shown_arguments.append(MASK if is_secret_key_or_url_password("", argument) else argument)
        hide_next = (
            not equals
            and not hide_next
            and argument.startswith("-")
            and is_secret_key_or_url_password(argument)
        )
    return shown_arguments
