"""Which events were told before: hooks are posted twice, telemetry is sent again, transcripts are read again.

Called by actions.events within the transaction that writes the events, so a claim stands exactly if they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
from django.db import connection

from coordinator import instants
from coordinator.models import EventOrigin


class Told(Protocol):
    """What is needed of an event; actions.events.ToldEvent has it."""

    session_id: str
    origin: str
    origin_for: int | None
    claims: tuple[str, ...]


def told_before(events: Sequence[Told], now: datetime) -> set[int]:
    """Claim the events' origins; return the `id()` of those whose origin is taken. Their sessions must exist.

    Of two with the same origin the first is new. On PostgreSQL a twin in another transaction is waited for.
    """
    if not events:
        return set()
    at = instants.to_us(now) // 1000
    wanted: dict[str, list[object]] = {}
    firsts: dict[str, int] = {}
    for event in events:
        until = None if event.origin_for is None else at + event.origin_for
        key = _key(event, event.origin)
        if key not in wanted:
            wanted[key] = [key, event.session_id, until]
            firsts[key] = id(event)
        for claim in event.claims:
            wanted.setdefault(_key(event, claim), [_key(event, claim), event.session_id, None])
    won = _claim([wanted[key] for key in sorted(wanted)], at)
    new = {firsts[key] for key in won if key in firsts}
    return {id(event) for event in events} - new


def _key(event: Told, origin: str) -> str:
    """Return an origin within its session: nobody can claim what is said in a session that is not theirs."""
    return f"{event.session_id}:{origin}"


def _claim(rows: Sequence[Sequence[object]], at: int) -> set[str]:
    """Insert the rows, or take over those whose time is up; return the keys that are ours now."""
    packed = msgspec.json.encode(rows).decode()
    if connection.vendor == "sqlite":
        given = (
            "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')"
            " FROM json_each(%s) WHERE true"
        )
    else:
        given = "SELECT value->>0, value->>1, (value->>2)::bigint FROM jsonb_array_elements(%s::jsonb)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO event_origins (key, session_id, until) {given}"
            " ON CONFLICT (key) DO UPDATE SET session_id = excluded.session_id, until = excluded.until"
            " WHERE event_origins.until <= %s RETURNING key",
            [packed, at],
        )
        return {row[0] for row in cursor.fetchall()}


def known(keys: Iterable[str], now: datetime) -> set[str]:
    """Return those of the origins that are taken. Only reads."""
    packed = msgspec.json.encode(list(keys)).decode()
    given = "json_each(%s)" if connection.vendor == "sqlite" else "jsonb_array_elements_text(%s::jsonb)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT key FROM event_origins WHERE key IN (SELECT value FROM {given})"  # noqa: S608 # constants
            " AND (until IS NULL OR until > %s)",
            [packed, instants.to_us(now) // 1000],
        )
        return {row[0] for row in cursor.fetchall()}


def forget_free(now: datetime) -> None:
    """Drop the claims whose time is up."""
    EventOrigin.objects.filter(until__lte=now).delete()
