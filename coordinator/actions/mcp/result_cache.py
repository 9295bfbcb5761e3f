"""Cached results of read-only tools, in the database: bounded in size, number and age."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.upkeep.excess_rows import delete_excess_rows
from coordinator.errors import NotFound
from coordinator.identity.actors import Actor, require_actor_not_api_key
from coordinator.mcp.gateway.binding import qualified_tool_name
from coordinator.mcp.gateway.cached_results import (
    CachedCall,
    hash_tool_cache_version,
    tool_result_cache_seconds,
)
from coordinator.mcp.gateway.servers import load_upstream_server
from coordinator.mcp.servers import sign_ins
from coordinator.mcp.servers.sign_ins import SignInNeeded
from coordinator.models import CachedResult, CacheGeneration, McpAccessToken, McpAuthorization, McpServer
from coordinator.secrets.sealing import seal_for_purpose, unseal_for_purpose

ONLY_PEOPLE = "An API key cannot empty the cache. A person must sign in to do it."
MAX_CACHED_PER_SERVER = 256  # results; the oldest go first
DELETED_AT_ONCE = 50
SEALED_AS = "cached MCP result"
NO_SIGN_IN = "none"  # as whose sign-in goes with a call where nobody signs in


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """What the cache has for a call. `result` is None where it has none. `sign_in` is whose sign-in goes with it.

    `generation` is how often the server's results were deleted before.
    """

    sign_in: str
    result: bytes | None = None
    age_seconds: int = 0
    generation: int = 0


def find_cached_call_result(call: CachedCall, now: datetime) -> CacheLookup | None:
    """Return what is cached for a call; None where its result may not be cached: nobody is chosen to sign in for it."""
    try:
        sign_in, is_signed_in = sign_in_and_whether_valid(call, now)
    except SignInNeeded:
        return None
    generation = CacheGeneration.objects.filter(pk=call.server_id).values_list("deletions", flat=True).first()
    missing = CacheLookup(sign_in, generation=generation or 0)
    if not is_signed_in:
        return missing
    row = CachedResult.objects.filter(
        key=call.build_cache_key(sign_in),
        expires_at__gt=now,
        answered_at__gt=now - timedelta(seconds=call.seconds),
    ).first()
    if row is None or not isinstance(row.answered_at, datetime):
        return missing
    try:
        content = unseal_for_purpose(SEALED_AS, row.content.encode())
    except ValueError:  # the secret key is another one by now
        return missing
    age_seconds = max(0, round((now - row.answered_at).total_seconds()))
    return replace(missing, result=content, age_seconds=age_seconds)


def sign_in_and_whether_valid(call: CachedCall, now: datetime) -> tuple[str, bool]:
    """Return whose sign-in goes with a call, and whether it holds now. Raises SignInNeeded where nobody is chosen."""
    authorization = McpAuthorization.objects.filter(pk=call.server_id).first()
    if authorization is None:
        return NO_SIGN_IN, True
    user_id = sign_ins.resolve_token_owner_id(authorization, call.agent_id)
    token = McpAccessToken.objects.filter(server_id=call.server_id, user_id=user_id).first()
    if token is None:
        return f"{user_id}", False
    has_ended = isinstance(token.expires_at, datetime) and token.expires_at <= now
    return f"{user_id} {token.pk}", bool(token.access_token) and not token.problem and not has_ended


def record_cached_answer(
    call: CachedCall, actor: Actor, session_id: str, age_seconds: int, now: datetime
) -> None:
    """Write into the audit log that a call was answered from the cache."""
    audit.record_audit_entry(
        "MCP_ANSWERED_FROM_CACHE",
        actor=actor,
        target=session_id,
        permission=qualified_tool_name(call.server_id, call.tool),
        result="success",
        metadata={"server": call.server_id, "agent_id": call.agent_id, "age_seconds": age_seconds},
        now=now,
    )


def store_cached_result(
    call: CachedCall, lookup: CacheLookup, result: bytes, *, answered_at: datetime, now: datetime
) -> None:
    """Store a result for as long as it may be answered again; the oldest of its server go where it has too many.

    `lookup` was made before the call was sent, and `answered_at` is when that was: what the server changed meanwhile
    counts as changed after it. Nothing is stored where another sign-in goes with the agent's calls by now, or where the
    server's results were deleted meanwhile. To be called inside a transaction.
    """
    try:
        is_same_sign_in = sign_in_and_whether_valid(call, now)[0] == lookup.sign_in
    except SignInNeeded:
        return
    if not is_same_sign_in or lock_cache_generation(call.server_id).deletions != lookup.generation:
        return
    row = CachedResult(
        key=call.build_cache_key(lookup.sign_in),
        scope=call.scope,
        server_id=call.server_id,
        tool_name=call.tool,
        agent_id=call.agent_id,
        content=seal_for_purpose(SEALED_AS, result).decode(),
        answered_at=answered_at,
        expires_at=answered_at + timedelta(seconds=call.seconds),
    )
    CachedResult.objects.bulk_create(
        [row],
        update_conflicts=True,
        unique_fields=["key"],
        update_fields=["content", "answered_at", "expires_at"],
    )
    newest = CachedResult.objects.filter(server_id=call.server_id).order_by("-answered_at", "-pk")
    delete_excess_rows(newest, MAX_CACHED_PER_SERVER, at_once=DELETED_AT_ONCE)


def delete_cached_results(server_id: str, tool_name: str = "") -> int:
    """Delete a server's cached results, or those of one tool; return how many there were.

    Results of calls that were sent before are not stored any more.
    """
    rows = CachedResult.objects.filter(server_id=server_id)
    with transaction.atomic():
        generation = lock_cache_generation(server_id)
        generation.deletions += 1
        generation.save(update_fields=["deletions"])
        deleted, _ = (rows.filter(tool_name=tool_name) if tool_name else rows).delete()
    return deleted


def lock_cache_generation(server_id: str) -> CacheGeneration:
    """Return how often a server's results were deleted, locked: nothing is stored or deleted meanwhile."""
    generations = CacheGeneration.objects.select_for_update()
    generation, _ = generations.get_or_create(pk=server_id, defaults={"deletions": 0})
    return generation


def clear_result_cache(server_id: str, *, actor: Actor, now: datetime) -> int:
    """Delete a server's cached results for a person; return how many. Raises Forbidden for an API key, NotFound."""
    require_actor_not_api_key(actor, ONLY_PEOPLE)
    with transaction.atomic():
        if not McpServer.objects.filter(pk=server_id).exists():
            raise NotFound("This server no longer exists.")
        deleted = delete_cached_results(server_id)
        if deleted:
            audit.record_audit_entry(
                "MCP_CACHE_EMPTIED",
                actor=actor,
                target=server_id,
                result="success",
                metadata={"results": deleted},
                now=now,
            )
    return deleted


def list_valid_cached_results(server_id: str, now: datetime) -> list[CachedResult]:
    """Return the results of a server that can still be answered, the newest first, without their content."""
    rows = CachedResult.objects.filter(server_id=server_id, expires_at__gt=now).defer("content")
    newest = list(rows.order_by("-answered_at"))
    scopes = load_current_cache_scope_hashes(server_id, {row.tool_name for row in newest})
    return [row for row in newest if row.scope in scopes]


def load_current_cache_scope_hashes(server_id: str, tools: set[str]) -> set[str]:
    """Return the scopes of the tools' results as the server, its tools and limits are now."""
    server = load_upstream_server(server_id) if tools else None
    if server is None:
        return set()
    return {
        hash_tool_cache_version(server, tool) for tool in tools if tool_result_cache_seconds(server, tool)
    }


def delete_stale_cached_results(now: datetime) -> None:
    """Delete results that are too old, and those from before a change of their server, tool or limits."""
    CachedResult.objects.filter(expires_at__lte=now).delete()
    tools: dict[str, set[str]] = {}
    for server_id, tool in CachedResult.objects.values_list("server_id", "tool_name").distinct():
        tools.setdefault(server_id, set()).add(tool)
    for server_id, names in tools.items():
        rows = CachedResult.objects.filter(server_id=server_id)
        rows.exclude(scope__in=load_current_cache_scope_hashes(server_id, names)).delete()
