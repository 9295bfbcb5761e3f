"""Hosts of the URLs in servers' results, and which of them are new to both the server and the session.

The first results of a new server establish its usual hosts. They count as known without a mark until it has been
watched for LEARNING_TIME and in LEARNING_RESULTS results with addresses. A host that the call itself names is not new.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q

from coordinator.actions.upkeep.excess_rows import delete_excess_rows
from coordinator.models import McpHostLearning, McpResultHost
from coordinator.secrets.masking import SecretMasker

LEARNING_TIME = timedelta(days=1)
LEARNING_RESULTS = 20
MAX_HOSTS_PER_SERVER = 2_000  # the newest
DELETED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class ResultHosts:
    """The hosts of a result's addresses, and of those that its call named. `is_cut`: it has more than are looked at."""

    hosts: frozenset[str]
    named_hosts: frozenset[str]
    is_cut: bool


def record_hosts_return_whether_new(
    session_id: str, server_id: str, result: ResultHosts, now: datetime
) -> bool:
    """Note a result's hosts; return whether one of them is new, once the server's first results are through."""
    masker = SecretMasker()
    hosts = {
        host: masker.mask_text(host) or "" for host in result.hosts
    }  # a host may contain a secret that is sent out
    all_hosts = frozenset(hosts.values())
    named_hosts = {hosts[host] for host in result.named_hosts & result.hosts}
    seen_before = McpResultHost.objects.filter(host__in=all_hosts)
    rows = seen_before.filter(Q(server_id=server_id) | Q(session_id=session_id))
    known_rows = list(rows.values_list("server_id", "session_id", "host"))
    own_hosts = {host for row_server, _, host in known_rows if row_server == server_id}
    new_hosts = all_hosts - {host for *_, host in known_rows} - named_hosts
    is_learning = advance_host_learning(server_id, now)
    if any(
        row_server == server_id and row_session != session_id for row_server, row_session, _ in known_rows
    ):
        seen_before.filter(server_id=server_id).update(session_id=session_id, seen_at=now)
    save_seen_result_hosts(session_id, server_id, all_hosts - own_hosts, now)
    return (bool(new_hosts) or result.is_cut) and not is_learning


def advance_host_learning(server_id: str, now: datetime) -> bool:
    """Count a result with addresses of a new server; return whether its hosts are still learnt without a mark."""
    row, _ = McpHostLearning.objects.get_or_create(
        server_id=server_id, defaults={"results": 0, "started_at": now}
    )
    is_young = isinstance(row.started_at, datetime) and row.started_at > now - LEARNING_TIME
    if not is_young and row.results >= LEARNING_RESULTS:
        return False
    if row.results < LEARNING_RESULTS:
        McpHostLearning.objects.filter(pk=server_id).update(results=F("results") + 1)
    return True


def save_seen_result_hosts(session_id: str, server_id: str, hosts: AbstractSet[str], now: datetime) -> None:
    """Make hosts known for a server; those that were met longest ago go where it has too many."""
    if not hosts:
        return
    McpResultHost.objects.bulk_create(
        [
            McpResultHost(server_id=server_id, session_id=session_id, host=host, seen_at=now)
            for host in sorted(hosts)
        ],
        ignore_conflicts=True,
    )
    newest = McpResultHost.objects.filter(server_id=server_id).order_by("-seen_at", "-pk")
    delete_excess_rows(newest, MAX_HOSTS_PER_SERVER, at_once=DELETED_AT_ONCE)
