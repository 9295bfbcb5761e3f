"""Limits of calls through the MCP gateway: set by administrators, enforced across all workers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.mcp import result_cache
from coordinator.actions.upkeep.excess_rows import delete_excess_rows
from coordinator.errors import NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, require_actor_not_api_key, system_actor
from coordinator.lib import json_bounds
from coordinator.mcp.gateway.call_limits import WHOLE_SERVER, CircuitBreaker
from coordinator.mcp.gateway.limited_results import MAX_RESULT_BYTES, MIN_RESULT_BYTES
from coordinator.models import McpCallLimit, McpCallRate, McpCircuitBreaker, McpServer, McpTool, StoredResult
from coordinator.secrets.masking import SecretMasker
from coordinator.secrets.sealing import seal_for_purpose, unseal_for_purpose

BY = system_actor("gateway")
ONLY_PEOPLE = "An API key cannot change limits of calls. A person must sign in to do it."
MIN_CALL_SECONDS, MAX_CALL_SECONDS = 1, 86_400
MAX_CALLS_PER_MINUTE = 100_000
MAX_CACHE_SECONDS = 86_400
MAX_BREAKER_FAILURES, MAX_BREAKER_SECONDS = 1_000, 86_400
MINUTE = 60.0
MAX_SECONDS_UNCOUNTED = (
    10.0  # a call counts at the time at which it came, at most so long before it is counted
)
STORED_FOR = timedelta(days=1)
MAX_STORED_PER_AGENT = 100  # results; the oldest go first
SEALED_AS = "rest of an MCP result"
SEALED_ARGUMENTS_AS = "arguments of a cut MCP result"


@dataclass(frozen=True, slots=True)
class CallLimitSettings:
    """What an administrator sets for a server, or for one tool. None: the server's, or no limit."""

    call_seconds: int | None = None
    calls_per_minute: int | None = None
    result_bytes: int | None = None
    masks_secrets: bool | None = None
    cache_seconds: int | None = None
    marks_addresses: bool | None = None
    breaker_failures: int | None = None
    breaker_seconds: int | None = None


NOTHING_SET = CallLimitSettings()


def save_call_limits(
    server_id: str, tool_name: str, new: CallLimitSettings, *, actor: Actor, now: datetime
) -> bool:
    """Set the limits of a server, or of a tool; return whether anything changed.

    Raises Forbidden for an API key, NotFound, UnprocessableRequest.
    """
    require_actor_not_api_key(actor, ONLY_PEOPLE)
    validate_call_limits(tool_name, new)
    with transaction.atomic():
        if not McpServer.objects.select_for_update().filter(pk=server_id).exists():
            raise NotFound("This server no longer exists.")
        if tool_name and not McpTool.objects.filter(server_id=server_id, name=tool_name).exists():
            raise NotFound("This tool no longer exists.")
        rows = McpCallLimit.objects.filter(server_id=server_id, tool_name=tool_name)
        row = rows.first()
        before = call_limit_settings_of_row(row)
        if before == new:
            return False
        if new == NOTHING_SET:
            rows.delete()
        else:
            McpCallLimit.objects.update_or_create(
                server_id=server_id,
                tool_name=tool_name,
                defaults=asdict(new) | {"changed_by": str(actor), "changed_at": now},
            )
        if before.calls_per_minute != new.calls_per_minute:
            McpCallRate.objects.filter(server_id=server_id, tool_name=tool_name).delete()
        if (before.breaker_failures, before.breaker_seconds) != (new.breaker_failures, new.breaker_seconds):
            McpCircuitBreaker.objects.filter(pk=server_id).delete()
        result_cache.delete_cached_results(server_id, tool_name)
        audit.record_audit_entry(
            "MCP_CALL_LIMITS_CHANGED",
            actor=actor,
            target=server_id,
            result="success",
            metadata={"tool": tool_name or None, "before": asdict(before), "after": asdict(new)},
            now=now,
        )
    return True


def call_limit_settings_of_row(row: McpCallLimit | None) -> CallLimitSettings:
    """Return what a row says."""
    if row is None:
        return NOTHING_SET
    return CallLimitSettings(
        row.call_seconds,
        row.calls_per_minute,
        row.result_bytes,
        row.masks_secrets,
        row.cache_seconds,
        row.marks_addresses,
        row.breaker_failures,
        row.breaker_seconds,
    )


def validate_call_limits(tool_name: str, new: CallLimitSettings) -> None:
    ranges = (
        (new.call_seconds, MIN_CALL_SECONDS, MAX_CALL_SECONDS, "A call may take {} to {} seconds."),
        (new.calls_per_minute, 1, MAX_CALLS_PER_MINUTE, "A rate is {} to {} calls a minute."),
        (new.result_bytes, MIN_RESULT_BYTES, MAX_RESULT_BYTES, "A result may have {} to {} bytes."),
        (new.cache_seconds, 0, MAX_CACHE_SECONDS, "A result is answered again for {} to {} seconds."),
        (new.breaker_failures, 1, MAX_BREAKER_FAILURES, "A circuit breaker opens after {} to {} failures."),
        (new.breaker_seconds, 1, MAX_BREAKER_SECONDS, "A circuit breaker is open for {} to {} seconds."),
    )
    for number, least, most, text in ranges:
        if number is not None and not least <= number <= most:
            raise UnprocessableRequest(text.format(f"{least:,}", f"{most:,}"))
    if (new.breaker_failures is None) != (new.breaker_seconds is None):
        raise UnprocessableRequest("Say after how many failures the circuit breaker opens, and for how long.")
    if tool_name and new.breaker_failures is not None:
        raise UnprocessableRequest("A circuit breaker is set for the whole server.")


@dataclass(frozen=True, slots=True)
class CallRefusal:
    """Why a call is not sent: a rate is used up for so many seconds, or else another call tries the server."""

    full_rate: str | None = None  # of which tool, or WHOLE_SERVER
    retry_seconds: float = 0.0


def admit_call_or_find_refusal(
    server_id: str, rates: Mapping[str, int], trial_until: datetime | None, now: datetime
) -> CallRefusal | None:
    """Count a call at the rates of its server and its tool; return why it is not sent, or None where it is.

    With `trial_until` it also becomes the one call that is tried until then, as its server's circuit breaker was open.
    A call that is not sent counts at no rate.
    """
    with transaction.atomic():
        rows = []
        for tool_name, calls_per_minute in sorted(rates.items()):
            row = lock_rate_clipping_future(server_id, tool_name, now)
            retry_seconds = add_call_or_find_retry_seconds(row, calls_per_minute, now)
            if retry_seconds > 0:
                return CallRefusal(tool_name, retry_seconds)
            rows.append(row)
        if trial_until is not None and not claim_breaker_trial(server_id, trial_until, now):
            return CallRefusal()
        for row in rows:
            row.save(update_fields=["used_until"])
    return None


def lock_rate_clipping_future(server_id: str, tool_name: str, now: datetime) -> McpCallRate:
    """Return a rate's row, locked. One that is used up for longer than a minute is corrected and saved.

    It is, where the clock was set back. A few seconds more are left: another call was counted sooner than this one.
    """
    row, _ = McpCallRate.objects.select_for_update().get_or_create(
        server_id=server_id, tool_name=tool_name, defaults={"used_until": 0.0}
    )
    latest = now.timestamp() + MINUTE
    if row.used_until > latest + MAX_SECONDS_UNCOUNTED:
        row.used_until = latest
        row.save(update_fields=["used_until"])
    return row


def add_call_or_find_retry_seconds(row: McpCallRate, calls_per_minute: int, now: datetime) -> float:
    """Add a call to a rate's unsaved row; return 0, or the seconds after which it may be tried again.

    Each call moves the row's time on by its share of a minute, none further than a minute ahead.
    """
    seconds = now.timestamp()
    used_until = max(row.used_until, seconds) + MINUTE / calls_per_minute
    if used_until - seconds > MINUTE + 0.001:
        return used_until - seconds - MINUTE
    row.used_until = used_until
    return 0.0


def claim_breaker_trial(server_id: str, trial_until: datetime, now: datetime) -> bool:
    """Take the one call that is tried once an open breaker's time is over; False where another call is it.

    True also where the breaker closed meanwhile.
    """
    with transaction.atomic():
        row = McpCircuitBreaker.objects.select_for_update().filter(pk=server_id).first()
        if row is None or not isinstance(row.open_until, datetime):
            return True
        if row.open_until > now or (isinstance(row.trial_until, datetime) and row.trial_until > now):
            return False
        row.trial_until = trial_until
        row.save(update_fields=["trial_until"])
    return True


def free_breaker_trial(server_id: str, trial_until: datetime) -> None:
    """Let another call try the server: the one that was tried until then has shown nothing."""
    McpCircuitBreaker.objects.filter(pk=server_id, trial_until=trial_until).update(trial_until=None)


def record_failure_for_breaker(server_id: str, breaker: CircuitBreaker, problem: str, now: datetime) -> None:
    """Count a failure; open the server's breaker at the last one of a row, and again after a failed trial."""
    text = (SecretMasker().mask_text(problem) or "")[:500]
    with transaction.atomic():
        row, is_new = McpCircuitBreaker.objects.select_for_update().get_or_create(
            pk=server_id, defaults={"failures": 1, "last_problem": text, "last_failed_at": now}
        )
        was_open = row.open_until is not None
        if not is_new:
            row.failures, row.last_problem, row.last_failed_at = row.failures + 1, text, now
        is_late = (
            isinstance(row.open_until, datetime) and row.open_until > now
        )  # it was sent before it opened
        if row.failures >= breaker.max_failures and not is_late:
            row.open_until, row.trial_until = now + timedelta(seconds=breaker.seconds), None
        row.save()
        if row.open_until is not None and not was_open:
            audit.record_audit_entry(
                "MCP_BREAKER_OPENED",
                actor=BY,
                target=server_id,
                result="success",
                metadata={"failures": row.failures, "problem": text, "seconds": breaker.seconds},
                now=now,
            )


def record_success_for_breaker(server_id: str, now: datetime) -> None:
    """Close the server's breaker, and forget its failures."""
    with transaction.atomic():
        row = McpCircuitBreaker.objects.select_for_update().filter(pk=server_id).first()
        if row is None:
            return
        row.delete()
        if row.open_until is not None:
            audit.record_audit_entry(
                "MCP_BREAKER_CLOSED",
                actor=BY,
                target=server_id,
                result="success",
                metadata={},
                now=now,
            )


def close_circuit_breaker(server_id: str, *, actor: Actor, now: datetime) -> bool:
    """Close a server's breaker for a person; return whether it was open. Raises Forbidden for an API key."""
    require_actor_not_api_key(actor, ONLY_PEOPLE)
    with transaction.atomic():
        deleted, _ = McpCircuitBreaker.objects.filter(pk=server_id, open_until__isnull=False).delete()
        if deleted:
            audit.record_audit_entry(
                "MCP_BREAKER_CLOSED", actor=actor, target=server_id, result="success", metadata={}, now=now
            )
    return bool(deleted)


def new_stored_result_id() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class ResultOwner:
    """Who may read the rest of a result: the key and the agent that called."""

    key_id: int
    agent_id: str


def store_result_remainder(
    stored_id: str,
    content: str,
    owner: ResultOwner,
    *,
    server_id: str,
    tool_name: str,
    arguments: Any,
    part_bytes: int,
    now: datetime,
) -> None:
    """Store the rest of a result for a day; the oldest of the agent's go where it has too many.

    `arguments` are those of the tool's call.
    """
    is_call = tool_name != WHOLE_SERVER
    StoredResult.objects.create(
        id=stored_id,
        server_id=server_id,
        tool_name=tool_name if is_call else "",
        agent_id=owner.agent_id,
        key_id=owner.key_id,
        arguments=seal_for_purpose(SEALED_ARGUMENTS_AS, json.dumps(arguments).encode()).decode()
        if is_call
        else None,
        content=seal_for_purpose(SEALED_AS, content.encode("utf-8", "surrogatepass")).decode(),
        size=len(content),
        part_bytes=part_bytes,
        created_at=now,
        expires_at=now + STORED_FOR,
    )
    own = StoredResult.objects.filter(agent_id=owner.agent_id).order_by("-created_at")
    delete_excess_rows(own, MAX_STORED_PER_AGENT, at_once=50)


def find_stored_result(stored_id: str, owner: ResultOwner, now: datetime) -> StoredResult | None:
    """Return a stored result of this key and agent; None where there is none, or it is another's."""
    rows = StoredResult.objects.filter(
        pk=stored_id, key_id=owner.key_id, agent_id=owner.agent_id, expires_at__gt=now
    )
    return rows.first()


def decrypt_stored_result(row: StoredResult) -> str:
    """Return a stored result's text. Raises ValueError where it cannot be opened any more."""
    return unseal_for_purpose(SEALED_AS, row.content.encode()).decode("utf-8", "surrogatepass")


def decrypt_stored_arguments(row: StoredResult) -> Any:
    """Return the arguments of the call whose result is stored; none where they are not known or cannot be opened."""
    try:
        arguments = unseal_for_purpose(SEALED_ARGUMENTS_AS, (row.arguments or "").encode())
        return json_bounds.load_bounded_json(arguments)
    except ValueError:
        return {}


def delete_expired_stored_results(now: datetime) -> None:
    """Delete stored results whose day is over."""
    StoredResult.objects.filter(expires_at__lt=now).delete()
