"""Claims that detect repeated events: hooks are posted twice, telemetry is resent, transcripts are reread.

Called by actions.sessions.events within the transaction that writes the events, so a claim exists exactly if they do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from django.db import connection

from coordinator.engine import bulk
from coordinator.lib import instants
from coordinator.models import EventOrigin
from coordinator.sessions.reports import ANYWHERE


class HasOrigin(Protocol):
    """The fields that claims need of an event, such as `DedupedEvent`."""

    session_id: str
    origin: str
    origin_for: int | None
    claims: tuple[str, ...]
    unless: tuple[str, ...]
    everywhere: bool


def claim_origins_and_find_duplicates(events: Sequence[HasOrigin], now: datetime) -> set[int]:
    """Claim the events' origins; return the `id()` of those whose origin is taken, or one of `unless` is.

    Their sessions must exist.

    Of two with the same origin the first is new, and an event is left out because of those before it. On PostgreSQL a
    twin in another transaction is waited for.
    """
    if not events:
        return set()
    at = instants.instant_to_microseconds(now) // 1000
    wanted_origins: dict[str, list[object]] = {}
    firsts: dict[str, HasOrigin] = {}
    taken_origins = find_claimed_excluding_origins(events, now)
    for event in events:
        excluding_keys = build_origin_keys(event, event.unless)
        if not (taken_origins.isdisjoint(event.unless) and wanted_origins.keys().isdisjoint(excluding_keys)):
            continue
        until = None if event.origin_for is None else at + event.origin_for
        key = event.origin if event.everywhere else scope_origin_to_session(event.session_id, event.origin)
        if key not in wanted_origins:
            wanted_origins[key] = [key, event.session_id, until]
            firsts[key] = event
        for claimed in build_origin_keys(event, event.claims):
            wanted_origins.setdefault(claimed, [claimed, event.session_id, None])
    won = insert_origin_claims([wanted_origins[key] for key in sorted(wanted_origins)], at)
    new = [event for key, event in firsts.items() if key in won]
    # Claims that another transaction took meanwhile may exclude the event.
    beaten = [one for one in new if one.unless and not won.issuperset(build_origin_keys(one, one.claims))]
    taken_origins = find_claimed_excluding_origins(beaten, now)
    left_out = {id(event) for event in beaten if not taken_origins.isdisjoint(event.unless)}
    return ({id(event) for event in events} - {id(event) for event in new}) | left_out


def find_claimed_excluding_origins(events: Sequence[HasOrigin], now: datetime) -> set[str]:
    unless = {(event.session_id, key) for event in events for key in event.unless}
    return filter_claimed_origins(unless, now) if unless else set()


def build_origin_keys(event: HasOrigin, origins: Collection[str]) -> list[str]:
    return [scope_origin_to_session(event.session_id, origin) for origin in origins]


def claim_event_origin_in_session(session_id: str, origin: str, now: datetime) -> bool:
    """Claim an origin within a session, for good; False where it is taken. The session must exist."""
    return bool(
        insert_origin_claims(
            [[scope_origin_to_session(session_id, origin), session_id, None]],
            instants.instant_to_microseconds(now) // 1000,
        )
    )


def scope_origin_to_session(session_id: str, origin: str) -> str:
    """Return an origin within its session: nobody can claim what is said in a session that is not theirs."""
    return origin if origin.startswith(ANYWHERE) else f"{session_id}:{origin}"


def insert_origin_claims(rows: Sequence[Sequence[object]], at: int) -> set[str]:
    """Insert the rows, or take over those whose time is up; return the keys that are ours now."""
    values_sql, parameters = bulk.rows_select_sql_and_parameters(rows, "text", "text", "bigint")
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO event_origins (key, session_id, until) {values_sql}"
            " ON CONFLICT (key) DO UPDATE SET session_id = excluded.session_id, until = excluded.until"
            " WHERE event_origins.until <= %s RETURNING key",
            [*parameters, at],
        )
        return {row[0] for row in cursor.fetchall()}


def filter_claimed_origins(claims: Collection[tuple[str | None, str]], now: datetime) -> set[str]:
    """Return those origins that are taken, in the session that each names or everywhere. Only reads."""
    origin_of = {key: key for _, key in claims} | {
        scope_origin_to_session(at, key): key for at, key in claims if at
    }
    values_sql, parameters = bulk.rows_select_sql_and_parameters([[key] for key in origin_of], "text")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT key FROM event_origins WHERE key IN ({values_sql})"  # constants  # noqa: S608
            " AND (until IS NULL OR until > %s)",
            [*parameters, instants.instant_to_microseconds(now) // 1000],
        )
        return {origin_of[row[0]] for row in cursor.fetchall()}


def delete_expired_origin_claims(now: datetime) -> None:
    """Drop the claims whose time is up."""
    EventOrigin.objects.filter(until__lte=now).delete()
