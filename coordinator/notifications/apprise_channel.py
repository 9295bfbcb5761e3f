"""The channel for services: Slack, Discord, ntfy and a hundred others, by the library Apprise.

An address there holds a token or a password, so it is a secret: sealed in the database, never logged, and passed to the
child process that sends (apprise_child) on its standard input.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from coordinator.models import Notification, NotificationTarget, PermissionRequest
from coordinator.notifications.apprise_services import SCHEMAS, example_service_address
from coordinator.notifications.messages import MessageText, NotificationNotSent, build_message_text
from coordinator.secrets import keyring
from coordinator.secrets.digests import keyed_digest

DEADLINE = 25.0  # seconds for one message, however slowly the service drips
LONGEST_ADDRESS = 2_000
LONGEST_TEXT = 1_500  # characters
ROOT = Path(__file__).resolve().parents[2]
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from coordinator.notifications.apprise_child import "
    "main; main()"
)
_SCHEMA = re.compile(r"([A-Za-z0-9]{1,20})://")
# Addresses as services' own pages give them; Apprise knows whose they are.
_COPIED = ("http", "https")
# What services read as more than text: mentions of everybody, links under other words.
_ACTIVE = re.compile(r"(?<=[@<\]])(?=[^\s\u200b])")
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


class InvalidServiceAddress(Exception):
    """What was typed is no address that can be sent to. The text says why, and holds nothing of it but its schema."""


@dataclass(frozen=True, slots=True)
class DisplayedAddress:
    """What may be shown of an address: the service, and the host of one that people run themselves."""

    service: str
    host: str

    def __str__(self) -> str:
        return f"{self.service} at {self.host}" if self.host else self.service


def require_displayed_address_in_subprocess(url: str) -> DisplayedAddress:
    """Return where an address leads; nothing is sent. Raises InvalidServiceAddress, NotificationNotSent."""
    schema = require_allowed_schema(url)
    outcome = run_apprise_child({"url": url})
    if outcome.get("problem") == "incomplete":
        raise InvalidServiceAddress(incomplete_address_message(schema))
    if outcome.get("problem") == "internal":
        raise InvalidServiceAddress(str(outcome["why"]))
    if "problem" in outcome:
        raise InvalidServiceAddress("Signalbox does not send to this kind of service.")
    return DisplayedAddress(str(outcome["service"]), str(outcome["host"]))


def service_address_digest(url: str) -> str:
    """Return a digest by which the same address is recognised again."""
    return keyed_digest("notification address", url)


def seal_service_address(url: str) -> str:
    """Return an address as it is stored. Raises keyring.KeyringUnusable."""
    return keyring.seal_text_with_keyring(service_address_seal_purpose(service_address_digest(url)), url)


def unseal_target_address(target: NotificationTarget) -> str:
    """Return the address of a target of this kind. Raises keyring.KeyringUnusable."""
    return keyring.unseal_text_with_keyring(service_address_seal_purpose(target.address), target.secret or "")


def service_address_seal_purpose(address: str) -> str:
    return f"notification\x1f{address}"


def send_apprise_and_describe_success(
    message: Notification, request: PermissionRequest | None, now: datetime
) -> str:
    """Hand a message about `request` (None: a test) to its service; return what it answered.

    Raises NotificationNotSent.
    """
    try:
        url = unseal_target_address(message.target)
        require_allowed_schema(url)
    except (keyring.KeyringUnusable, InvalidServiceAddress) as problem:
        raise NotificationNotSent(str(problem)) from None
    outcome = run_apprise_child(
        {"url": url, **format_apprise_message(build_message_text(message, request, now))}
    )
    why_not = outcome.get("problem")
    if why_not == "incomplete":
        raise NotificationNotSent("its address can no longer be read. Remove it and add it again")
    if why_not is not None:
        raise NotificationNotSent(str(why_not))
    return str(outcome["outcome"])


def format_apprise_message(message_text: MessageText) -> dict[str, str]:
    text = f"{neutralize_service_markup(message_text.text, LONGEST_TEXT)}\n{message_text.link}".strip()
    return {"title": neutralize_service_markup(message_text.title), "text": text}


def neutralize_service_markup(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return foreign text that no service takes for a mention, a command or a link under other words."""
    text = _UNSEEN.sub("", text)
    return _ACTIVE.sub("\u200b", text if len(text) <= longest else f"{text[: longest - 1]}…")


def require_allowed_schema(url: str) -> str:
    """Return an address's schema.

    Raises InvalidServiceAddress for what is none, and for services that are not listed.
    """
    match = _SCHEMA.match(url)
    if (
        match is None
        or len(url) > LONGEST_ADDRESS
        or any(ord(sign) <= 32 or ord(sign) == 127 for sign in url)
    ):
        raise InvalidServiceAddress(
            "An address of a service begins like slack:// or https:// and has no spaces in it."
        )
    schema = match[1].lower()
    if schema not in SCHEMAS and schema not in _COPIED:
        raise InvalidServiceAddress(
            f"Signalbox does not send to {schema}:// addresses. See the list of services below."
        )
    return schema


def incomplete_address_message(schema: str) -> str:
    if schema in _COPIED:
        return (
            "This is not the address of a known service. If it is your own program, choose Webhook. "
            "Otherwise see below what your service's address looks like."
        )
    if shape := example_service_address(schema):
        return f"Something is missing in this {schema}:// address. It looks like {shape}"
    return (
        f"Something is missing in this {schema}:// address. Apprise's documentation says what it looks like."
    )


def run_apprise_child(order: Mapping[str, Any]) -> dict[str, Any]:
    """Run `order` in a process of its own, and return what it reports. Raises NotificationNotSent."""
    full = {**order, "schemas": SCHEMAS, "networks": [str(network) for network in settings.WEBHOOK_NETWORKS]}
    try:
        ended = subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-I", "-c", _BOOT, str(ROOT)],
            input=json.dumps(full).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            timeout=DEADLINE,
            check=False,
        )
        decoded = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        raise NotificationNotSent("did not answer in time") from None
    except (OSError, ValueError):
        raise NotificationNotSent("the process that sends ended before it was done") from None
    if not isinstance(decoded, dict):
        raise NotificationNotSent("the process that sends ended before it was done")
    return decoded
