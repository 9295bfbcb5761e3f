"""Usage records: a row for each request to a model, and sums by day and model for budgets.

All sources come through here, in the transaction that writes their events: hooks, transcripts, telemetry, driven
agents, the gateway and executors. What is guaranteed:

- A request has one row, known by its `request_key`: the origin of its event, which names the message or request. A
  report of it that comes again changes amounts that have grown, and adds nothing.
- `usage_days` grows by what is new in `usage_requests`, so both agree, however often something is reported.
- The cost is that of the day of the request. Without a price it is NULL, and the tokens are summed as unpriced.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import F, Q

from coordinator.actions.sessions import origins
from coordinator.engine import bulk
from coordinator.lib import instants
from coordinator.models import EventContext, ModelRequestUsage, UsageDay
from coordinator.runs.offers import PROGRAMS
from coordinator.sessions.events import CONTEXT_COLUMNS, EVENT_COLUMNS, DedupedEvent, NewEvent
from coordinator.usage import prices
from coordinator.usage.amounts import (
    AMOUNTS,
    LONGEST_NAME,
    NO_DETAIL,
    UNKNOWN_MODEL,
    RequestAmounts,
    UsageDetail,
    build_model_request_amounts,
)
from coordinator.usage.prices import TokenPrice
from coordinator.usage.reading import SESSION_OWNER

LONG_CONTEXT_TOKENS = 200_000  # more of them in is a long context
FAST_TIERS = frozenset({"fast", "priority"})
CALL = "pre_tool"
# The agent's program, by sessions.driven_agent_updates.program_name_of_runner_agent: where a runner drives the agent,
# the session names the runner's profile, and calls are asked about, and held, by the agent's program.
_RENAMED = " ".join(f"WHEN '{name}' THEN '{program}'" for name, program in PROGRAMS.items())
DRIVEN_PROGRAM = (
    f"(SELECT CASE d.agent {_RENAMED} ELSE d.agent END"  # noqa: S608 - names of ours
    " FROM driven_sessions d WHERE d.session_id = {session_id})"
)
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_COUNTED = ("calls", *_TOKENS, "cost", "unpriced_tokens")
_GIVEN = ("session_id", "day", "model", *_COUNTED)
_TYPES = ("text", "text", "text", *["bigint"] * (1 + len(_TOKENS)), "double precision", "bigint")
_TYPE = EVENT_COLUMNS.index("event_type")
_SESSION, _HAPPENED, _RECEIVED, _MODEL, _SUBAGENT, _SOURCE = map(
    CONTEXT_COLUMNS.index, ("session_id", "instant_us", "received_at", "model", "subagent", "source")
)
_OUTPUT = CONTEXT_COLUMNS.index("output_tokens")
_AT = tuple(map(CONTEXT_COLUMNS.index, _TOKENS))
_COLUMNS = {
    "request_key": "text",
    "event_id": "bigint",
    "session_id": "text",
    "subagent": "text",
    "at_us": "bigint",
    "day": "text",
    "model": "text",
    "provider": "text",
    **dict.fromkeys(AMOUNTS, "bigint"),
    "is_fast": "boolean",
    "is_batch": "boolean",
    "is_long_context": "boolean",
    "cost": "double precision",
    "source": "text",
}


@dataclass(frozen=True, slots=True)
class WrittenEvent:
    """An event that was written: as it came, its columns and those of its context, and its id."""

    item: NewEvent
    event: Sequence[Any]
    context: Sequence[Any]
    event_id: int


def record_usage_of_events(written: Sequence[WrittenEvent]) -> None:
    """Record the usage that these events report. Call it where they are written.

    A call counts on the day on which it was made, whatever is decided. The gateway writes one only where its agent
    reported nothing of it. One that is reported late may have been counted before its session was deleted.
    """
    late_calls: set[tuple[str, str]] = set()
    sums: dict[tuple[str, str, str], list[Any]] = {}
    requests: dict[str, tuple[WrittenEvent, ModelRequestUsage]] = {}
    own: dict[str, TokenPrice] | None = None
    for written_event in written:
        if written_event.event[_TYPE] == CALL:
            day = local_iso_day_of_request(capped_event_time_us(written_event.context))
            is_late = isinstance(written_event.item, DedupedEvent) and written_event.item.late
            counts = sums.setdefault((written_event.context[_SESSION], day, ""), build_zero_usage_day_row())
            counts[0] += not is_late
            if is_late:
                late_calls.add((written_event.context[_SESSION], day))
        if written_event.context[_OUTPUT] is not None:  # 0 at least, where others are reported
            own = prices.load_configured_model_prices() if own is None else own
            row = build_usage_row(written_event, own)
            requests.setdefault(row.request_key, (written_event, row))
    if requests:
        new = insert_usage_rows_returning_keys([row for _, row in requests.values()])
        for key in new:
            add_usage_row_to_sums(sums, requests[key][1])
        raise_recorded_usage_amounts(
            [build_usage_report_of_event(one.item) for key, (one, _) in requests.items() if key not in new]
        )
    if sums:
        add_sums_to_usage_days(sums)
    raise_call_counts_to_recorded_events(late_calls)


def raise_call_counts_to_recorded_events(days: Iterable[tuple[str, str]]) -> None:
    """Let `usage_days` have at least as many calls of a session and day as are recorded of them.

    The rows must exist, and be held by this transaction. What was counted before its session was deleted stays counted,
    and the same calls add nothing when they are reported again.
    """
    for session_id, day in sorted(days):
        date_of_day = date.fromisoformat(day)
        begins_at = datetime.combine(date_of_day, time.min, settings.LOCAL_ZONE)
        ends_at = datetime.combine(date_of_day + timedelta(days=1), time.min, settings.LOCAL_ZONE)
        # An event's time is that of its happening or, if that is earlier, of its receipt (`capped_event_time_us`).
        calls = EventContext.objects.filter(
            Q(instant_us__lt=instants.instant_to_microseconds(ends_at)) | Q(received_at__lt=ends_at),
            session_id=session_id,
            instant_us__gte=instants.instant_to_microseconds(begins_at),
            received_at__gte=begins_at,
            event__event_type=CALL,
        ).count()
        UsageDay.objects.filter(session_id=session_id, day=day, model="", calls__lt=calls).update(calls=calls)


def add_sums_to_usage_days(sums: Mapping[tuple[str, str, str], Sequence[Any]]) -> None:
    """Add sums by session, day and model to `usage_days`."""
    values_sql, parameters = bulk.rows_select_sql_and_parameters(
        [[*key, *counts] for key, counts in sorted(sums.items())], *_TYPES
    )
    with connection.cursor() as cursor:
        cursor.execute(build_usage_upsert_sql(values_sql), parameters)


def build_zero_usage_day_row() -> list[Any]:
    return [0, *[0] * len(_TOKENS), 0.0, 0]


def add_usage_row_to_sums(sums: dict[tuple[str, str, str], list[Any]], row: ModelRequestUsage) -> None:
    counts = sums.setdefault((row.session_id, row.day, row.model), build_zero_usage_day_row())
    for position, number in enumerate(usage_row_token_tuple(row), 1):
        counts[position] += number
    counts[-2] += row.cost or 0.0
    counts[-1] += row_total_tokens(row) if row.cost is None else 0


def usage_row_token_tuple(row: ModelRequestUsage) -> tuple[int, int, int, int]:
    """Return a row's tokens as `usage_days` has them."""
    written = row.cache_write_5m_tokens + row.cache_write_1h_tokens
    return row.input_tokens, row.output_tokens, row.cache_read_tokens, written


def row_total_tokens(row: ModelRequestUsage) -> int:
    return sum(usage_row_token_tuple(row))


def build_usage_deduplication_key(item: NewEvent, event_id: int) -> str:
    """Return by what a request is known again: its event's origin where that stays taken, else its event's id."""
    if isinstance(item, DedupedEvent) and item.origin_for is None:
        return (
            item.origin if item.everywhere else origins.scope_origin_to_session(item.session_id, item.origin)
        )
    return build_request_key_from_event_id(event_id)


def build_request_key_from_event_id(event_id: int) -> str:
    """Return the key of a request of which no more is known than its event."""
    return f"event:{event_id}"


def build_usage_row(event: WrittenEvent, own: dict[str, TokenPrice]) -> ModelRequestUsage:
    """Return the row of an event that reports tokens."""
    context = event.context
    tokens = {name: context[at] for name, at in zip(_TOKENS, _AT, strict=True)}
    return build_priced_usage_row(
        request_key=build_usage_deduplication_key(event.item, event.event_id),
        event_id=event.event_id,
        session_id=context[_SESSION],
        subagent=context[_SUBAGENT],
        at_us=capped_event_time_us(context),
        model=context[_MODEL],
        tokens=tokens,
        detail=(event.item.usage if isinstance(event.item, DedupedEvent) else None) or NO_DETAIL,
        source=context[_SOURCE],
        own=own,
    )


def capped_event_time_us(context: Sequence[Any]) -> int:
    """Return when an event happened. A clock that runs ahead would put it on a day that has not begun."""
    return int(min(context[_HAPPENED], context[_RECEIVED] * 1000))


def build_priced_usage_row(
    *,
    request_key: str,
    event_id: int,
    session_id: str,
    subagent: str | None,
    at_us: int,
    model: str | None,
    tokens: dict[str, int | None],
    detail: UsageDetail,
    source: str,
    own: dict[str, TokenPrice],
) -> ModelRequestUsage:
    """Return a priced row that is not written yet."""
    name = (model or UNKNOWN_MODEL)[:LONGEST_NAME]
    amounts = split_cache_writes_by_reported_cost(
        name, build_model_request_amounts(tokens, detail), own, at_us, detail
    )
    return ModelRequestUsage(
        request_key=request_key,
        event_id=event_id,
        session_id=session_id,
        subagent=subagent,
        at_us=at_us,
        day=local_iso_day_of_request(at_us),
        model=name,
        provider=detail.provider[:LONGEST_NAME] if detail.provider else None,
        **usage_amounts_as_columns(amounts),
        is_fast=detail.speed == "fast" or detail.service_tier in FAST_TIERS,
        is_batch=detail.is_batch,
        is_long_context=amounts.prompt_tokens > LONG_CONTEXT_TOKENS,
        cost=prices.calculate_request_cost(name, amounts, own, usage_pricing_time(at_us), detail),
        source=source,
    )


def local_iso_day_of_request(at_us: int) -> str:
    """Return the day of a request in the installation's time zone: that on which pages show it and budgets count it."""
    at_ms = instants.instant_to_microseconds(usage_pricing_time(at_us)) // 1000
    return instants.local_iso_date_of_milliseconds(at_ms, settings.LOCAL_ZONE)


def usage_amounts_as_columns(amounts: RequestAmounts) -> dict[str, int]:
    return {name: getattr(amounts, name) for name in AMOUNTS}


def usage_row_amounts(row: ModelRequestUsage) -> RequestAmounts:
    return RequestAmounts(**{name: getattr(row, name) for name in AMOUNTS})


def usage_pricing_time(at_us: int) -> datetime:
    """Return the instant at which a request is priced; the earliest that can be, where it is beyond all years."""
    try:
        return instants.instant_from_microseconds(at_us)
    except (OverflowError, ValueError):
        return instants.EPOCH


def split_cache_writes_by_reported_cost(
    model: str, amounts: RequestAmounts, own: dict[str, TokenPrice], at_us: int, detail: UsageDetail
) -> RequestAmounts:
    """Split the tokens written to a cache by what the agent says that the request cost.

    Claude Code's telemetry reports their sum and the cost. Only one split gives that cost. Where none does, its prices
    are others than ours, and all of it counts as written for five minutes.
    """
    written = amounts.cache_write_5m_tokens
    if detail.reported_cost is None or not written or amounts.cache_write_1h_tokens:
        return amounts
    all_for_an_hour = replace(amounts, cache_write_5m_tokens=0, cache_write_1h_tokens=written)
    at = usage_pricing_time(at_us)
    least, most = (
        prices.calculate_request_cost(model, amounts_variant, own, at, detail)
        for amounts_variant in (amounts, all_for_an_hour)
    )
    if least is None or most is None or most <= least:
        return amounts
    hours = round(written * (detail.reported_cost - least) / (most - least))
    if not 0 <= hours <= written:
        return amounts
    return replace(amounts, cache_write_5m_tokens=written - hours, cache_write_1h_tokens=hours)


def insert_usage_rows_returning_keys(rows: Sequence[ModelRequestUsage]) -> set[str]:
    """Insert the rows whose requests have none; return their keys."""
    values = [[getattr(row, name) for name in _COLUMNS] for row in sorted(rows, key=lambda r: r.request_key)]
    values_sql, parameters = bulk.rows_select_sql_and_parameters(values, *_COLUMNS.values())
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO usage_requests ({', '.join(_COLUMNS)}) {values_sql}"
            " ON CONFLICT DO NOTHING RETURNING request_key",
            parameters,
        )
        return {row[0] for row in cursor.fetchall()}


# --- what is reported again ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UsageReport:
    """A request as it is reported again: the keys under which it may be recorded, and what it used by this report."""

    keys: tuple[str, ...]
    amounts: RequestAmounts
    detail: UsageDetail


def build_usage_report_of_event(
    item: NewEvent, session_id: str | None = None, also: Iterable[str] = ()
) -> UsageReport:
    """Return what an event reports; `also` are other origins under which its request may be recorded."""
    session = session_id or item.session_id
    names = [] if not isinstance(item, DedupedEvent) else [item.origin, *also]
    detail = (item.usage if isinstance(item, DedupedEvent) else None) or NO_DETAIL
    keys = [key for name in names for key in (name, origins.scope_origin_to_session(session, name))]
    return UsageReport(
        tuple(dict.fromkeys(keys)),
        build_model_request_amounts({name: getattr(item, name) for name in _TOKENS}, detail),
        detail,
    )


def event_reports_tokens(item: NewEvent) -> bool:
    """Return whether an event reports a request to a model."""
    return any(getattr(item, name) is not None for name in _TOKENS)


def raise_recorded_usage_amounts(reports: Sequence[UsageReport]) -> int:
    """Give requests that are recorded the amounts that have grown since; return how many rows changed.

    An answer that is still being written is reported with the tokens so far. The last report has them all.
    """
    by_key = {key: report for report in reports for key in report.keys}
    if not by_key:
        return 0
    usage_rows = (
        ModelRequestUsage.objects.select_for_update().filter(request_key__in=by_key).order_by("request_key")
    )
    changed = 0
    own: dict[str, TokenPrice] | None = None
    for row in usage_rows:
        before, report = usage_row_amounts(row), by_key[row.request_key]
        after = take_larger_usage_amounts(before, report.amounts)
        if after == before:
            continue
        own = prices.load_configured_model_prices() if own is None else own
        update_usage_row_and_totals(row, after, report.detail, own)
        changed += 1
    return changed


def take_larger_usage_amounts(before: RequestAmounts, again: RequestAmounts) -> RequestAmounts:
    """Return the larger of each amount. Of two sums of cache writes, keep the one split by duration."""
    larger = {name: max(getattr(before, name), getattr(again, name)) for name in AMOUNTS}
    splits = sorted(
        (before, again), key=lambda one: (one.cache_write_tokens, one.cache_write_1h_tokens > 0, one is again)
    )
    for name in ("cache_write_5m_tokens", "cache_write_1h_tokens"):
        larger[name] = getattr(splits[-1], name)
    return RequestAmounts(**larger)


def update_usage_row_and_totals(
    row: ModelRequestUsage, amounts: RequestAmounts, detail: UsageDetail, own: dict[str, TokenPrice]
) -> None:
    """Write a row's new amounts and cost, and let its event and its day follow."""
    tokens, cost, unpriced = (
        usage_row_token_tuple(row),
        row.cost,
        row_total_tokens(row) if row.cost is None else 0,
    )
    detail = replace(detail, speed="fast" if row.is_fast and detail.speed is None else detail.speed)
    for name, value in usage_amounts_as_columns(amounts).items():
        setattr(row, name, value)
    row.is_long_context = amounts.prompt_tokens > LONG_CONTEXT_TOKENS
    row.cost = prices.calculate_request_cost(row.model, amounts, own, usage_pricing_time(row.at_us), detail)
    row.save()
    EventContext.objects.filter(event_id=row.event_id or 0).update(
        **dict(zip(_TOKENS, usage_row_token_tuple(row), strict=True))
    )
    more = [new - old for new, old in zip(usage_row_token_tuple(row), tokens, strict=True)]
    add_deltas_to_usage_day(
        row,
        dict(zip(_TOKENS, more, strict=True)),
        (row.cost or 0.0) - (cost or 0.0),
        (row_total_tokens(row) if row.cost is None else 0) - unpriced,
    )


def add_deltas_to_usage_day(
    row: ModelRequestUsage, tokens: dict[str, int], cost: float, unpriced: int
) -> None:
    UsageDay.objects.filter(session_id=row.session_id, day=row.day, model=row.model).update(
        **{name: F(name) + number for name, number in tokens.items()},
        cost=F("cost") + cost,  # None stays: an older version has counted that day without costs
        unpriced_tokens=F("unpriced_tokens") + unpriced,
    )


def update_usage_day_agent_programs(now: datetime) -> None:  # noqa: ARG001 - the shape of a job
    """Put right whose sums are that were written before it was known which agent a runner drives there."""
    driven_program = DRIVEN_PROGRAM.format(session_id="u.session_id")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT u.id, {driven_program} FROM usage_days u"  # noqa: S608 - names of ours
            f" WHERE coalesce(u.program, '') <> coalesce({driven_program}, u.program, '')"
        )
        wrong = cursor.fetchall()
    for row_id, program in wrong:  # each by itself: who writes events waits for one row at most
        UsageDay.objects.filter(pk=row_id).update(program=program)


@functools.cache
def build_usage_upsert_sql(values_sql: str) -> str:
    sums = [f"{name} = usage_days.{name} + excluded.{name}" for name in _COUNTED]
    # Whose a session is may be known only later in the day; what is known is not forgotten.
    owners = ("agent", "person", "hostname", "project_dir")
    sums += [f"{name} = coalesce(usage_days.{name}, excluded.{name})" for name in owners]
    sums += [
        "program = coalesce(excluded.program, usage_days.program)"
    ]  # the driven agent's program is reported later, too
    program = f"coalesce({DRIVEN_PROGRAM.format(session_id='s.session_id')}, s.executor_profile)"
    return (
        f"WITH given ({', '.join(_GIVEN)}) AS ({values_sql})"  # noqa: S608 - names of ours
        " INSERT INTO usage_days (day, session_id, model, agent, program, person, hostname, project_dir,"
        f" {', '.join(_COUNTED)})"
        f" SELECT g.day, g.session_id, g.model, s.agent_name, {program}, {SESSION_OWNER}, s.hostname, s.project_dir,"
        f" {', '.join(f'g.{name}' for name in _COUNTED)}"
        " FROM given g JOIN sessions s ON s.session_id = g.session_id WHERE true"
        f" ORDER BY g.session_id, g.day, g.model ON CONFLICT (day, session_id, model) DO UPDATE SET {', '.join(sums)}"
    )
