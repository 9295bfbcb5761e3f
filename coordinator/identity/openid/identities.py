"""Somebody as the provider knows them. Without a library: actions are there also where single sign-on is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Purpose = Literal["sign in", "confirm", "connect"]


@dataclass(frozen=True, slots=True)
class OpenIdIdentity:
    """Somebody, in the words of the provider. `issuer` and `subject` together are who it is; the rest may change."""

    issuer: str
    subject: str
    name: str
    role: str | None  # the highest that a group of theirs gives
    email: str = ""
    first_name: str = ""
    last_name: str = ""
    authenticated_at: float | None = None  # when the provider last asked who it is, epoch seconds
