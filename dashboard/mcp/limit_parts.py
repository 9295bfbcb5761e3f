"""The parts of a server's and a tool's page about call limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coordinator.actions.mcp.call_limits import CallLimitSettings, call_limit_settings_of_row
from coordinator.actions.mcp.result_cache import list_valid_cached_results
from coordinator.lib.sizes import format_byte_count
from coordinator.mcp.gateway.call_limits import WHOLE_SERVER
from coordinator.mcp.gateway.servers import load_read_only_tool_names
from coordinator.models import McpCallLimit, McpCircuitBreaker, McpUpstream

KIB = 1024


@dataclass(frozen=True, slots=True)
class LimitFact:
    """One limit in force, in words. `is_inherited` means that it is the server's."""

    label: str
    value: str
    is_inherited: bool = False


def build_limits_context(server_id: str, tool_name: str, now: datetime) -> dict[str, Any]:
    """Return the template context of the limits of a server, or of a tool if `tool_name` is not empty."""
    rows = {row.tool_name: row for row in McpCallLimit.objects.filter(server_id=server_id)}
    own = call_limit_settings_of_row(rows.get(tool_name))
    server = call_limit_settings_of_row(rows.get(WHOLE_SERVER))
    upstream = McpUpstream.objects.filter(pk=server_id).first()
    return {
        "limits": {
            "tool": tool_name,
            "own": own,
            "result_kib": own.result_bytes // KIB if own.result_bytes else "",
            "facts": list_call_limits_in_force(own, server, is_tool=bool(tool_name)),
            "server_seconds": upstream.call_seconds if upstream else "",
            "with_own": sorted(name for name in rows if name),
            "masks": "" if own.masks_secrets is None else "yes" if own.masks_secrets else "no",
            "marks": "" if own.marks_addresses is None else "yes" if own.marks_addresses else "no",
            "server_marks": server.marks_addresses is not False,
            "server_masks": bool(server.masks_secrets),
            "breaker": build_breaker_facts_or_none(server_id, server, now) if not tool_name else None,
            "cache": build_cache_facts(server_id, tool_name, own, server, now),
        }
    }


def list_call_limits_in_force(
    own: CallLimitSettings, server: CallLimitSettings, *, is_tool: bool
) -> list[LimitFact]:
    """Return the limits in force. A tool without a limit of its own has the server's."""
    facts = []
    for label, name, words in (
        ("Longest call", "call_seconds", lambda value: f"{value:,} s"),
        ("Largest result", "result_bytes", format_byte_count),
        ("Secrets in results", "masks_secrets", lambda value: "masked" if value else "as they come"),
        ("New addresses", "marks_addresses", lambda value: "marked" if value else "not marked"),
        ("Read-only results", "cache_seconds", describe_cache_seconds),
    ):
        value = getattr(own, name)
        is_inherited = value is None and is_tool
        value = getattr(server, name) if is_inherited else value
        if value is not None:
            facts.append(LimitFact(label, words(value), is_inherited))
    if own.calls_per_minute is not None:
        facts.append(LimitFact("Rate", f"{own.calls_per_minute:,} a minute"))
    if is_tool and server.calls_per_minute is not None:
        facts.append(LimitFact("Rate, all tools", f"{server.calls_per_minute:,} a minute", is_inherited=True))
    return facts


def describe_cache_seconds(seconds: int) -> str:
    return f"answered again for {seconds:,} s" if seconds else "not cached"


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """What is cached for a server, or for a tool.

    `is_read_only` is whether results of the tool can be cached.
    """

    seconds: int
    is_read_only: bool
    results: int = 0
    agents: int = 0
    newest_at: Any = None


def build_cache_facts(
    server_id: str, tool_name: str, own: CallLimitSettings, server: CallLimitSettings, now: datetime
) -> CacheFacts | None:
    """Return what is cached; None if caching is off."""
    seconds = server.cache_seconds if tool_name and own.cache_seconds is None else own.cache_seconds
    with_own = McpCallLimit.objects.filter(server_id=server_id, cache_seconds__gt=0)
    if not seconds and (tool_name or not with_own.exists()):
        return None
    if tool_name and tool_name not in load_read_only_tool_names(server_id):
        return CacheFacts(seconds or 0, is_read_only=False)
    rows = [
        row
        for row in list_valid_cached_results(server_id, now)
        if not tool_name or row.tool_name == tool_name
    ]
    agents = len({row.agent_id for row in rows})
    newest_at = rows[0].answered_at if rows else None
    return CacheFacts(seconds or 0, is_read_only=True, results=len(rows), agents=agents, newest_at=newest_at)


@dataclass(frozen=True, slots=True)
class BreakerFacts:
    """The state of a server's circuit breaker: `closed`, `open`, or `trial` (the next call is tried)."""

    state: str
    max_failures: int
    seconds: int
    failures: int = 0
    open_until: Any = None
    last_problem: str = ""
    last_failed_at: Any = None


def build_breaker_facts_or_none(
    server_id: str, server: CallLimitSettings, now: datetime
) -> BreakerFacts | None:
    if server.breaker_failures is None or server.breaker_seconds is None:
        return None
    row = McpCircuitBreaker.objects.filter(pk=server_id).first()
    if row is None:
        return BreakerFacts("closed", server.breaker_failures, server.breaker_seconds)
    state = "closed"
    if isinstance(row.open_until, datetime):
        state = "open" if row.open_until > now else "trial"
    return BreakerFacts(
        state,
        server.breaker_failures,
        server.breaker_seconds,
        row.failures,
        row.open_until,
        row.last_problem,
        row.last_failed_at,
    )
