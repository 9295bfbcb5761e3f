"""Upkeep: keys about to expire, housekeeping, files without messages, the search index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings

from coordinator.actions import key_binding, key_quotas, notifications, partitions, push, search, setup
from coordinator.identity.keys import accepts_unbound_keys
from coordinator.lib.times import rough
from coordinator.mcp import commands, credentials, isolation, open_database
from coordinator.mcp.names import is_ours, name_in_calls, read_as
from coordinator.models import ApiKey, Lease, McpCredential, McpServer, McpTool, McpUpstream
from coordinator.models.gateway import Network, Transport
from coordinator.operations.doctor import Check, fail, named, ok, stored_files, warn
from coordinator.operations.jobs import JOBS
from coordinator.policy import deciders
from coordinator.transparency import state as transparency

MIB = 1024 * 1024
EXPIRES_SOON = timedelta(days=14)
OVERDUE = timedelta(minutes=5)  # beyond a job's own pace
MANY_EVENTS = 5_000_000  # from which on parts are worth their while
INDEX_BEHIND = 20_000  # events; housekeeping takes on some 8,000 a second


def examine(now: datetime, *, served: bool) -> Iterator[Check]:
    """Yield the checks; `served` says whether a server runs that should have done its housekeeping."""
    yield _people()
    yield _deciders(now)
    yield _keys(now)
    yield _unbound_keys(now)
    yield _key_quotas(now)
    yield _credentials()
    yield _commands()
    yield _isolation()
    yield from _open_database()
    yield _names_in_calls()
    yield _housekeeping(now) if served else ok("housekeeping", "no server is running to do it")
    yield from stored_files.examine(now)
    yield _events()
    yield _search()
    yield from _audit_log(now)


def _people() -> Check:
    if setup.is_open():
        remedy = "Start `python manage.py serve`, which prints a link for the first administrator."
        return warn("people", "Nobody can sign in yet.", remedy)
    return ok("people", "somebody can sign in")


def _deciders(now: datetime) -> Check:
    book = deciders.load(now)
    troubles = book.troubles()
    if troubles:
        return fail(
            "who decides",
            f"{troubles[0]}{f' {len(troubles) - 1} more rows are like it.' if troubles[1:] else ''}",
            "Change the row on the page Who decides, or put active approvers into its group.",
        )
    return ok(
        "who decides", f"somebody decides each of {len(book.rules)} rows" if book.rules else "every approver"
    )


def _keys(now: datetime) -> Check:
    live = ApiKey.objects.filter(revoked_at__isnull=True, expires_at__gt=now)
    soon = [
        f"{key.name} (in {rough(key.expires_at - now)})"
        for key in live.filter(expires_at__lte=now + EXPIRES_SOON).order_by("expires_at")
    ]
    if soon:
        return warn(
            "keys",
            f"{len(soon)} expire soon: {named(soon)}.",
            "Make new ones: python manage.py apikey create …",
        )
    return ok("keys", "none expires within 14 days")


def _unbound_keys(now: datetime) -> Check:
    if not accepts_unbound_keys():
        return ok("agents' keys", "each is bound to the agents that it speaks for")
    unbound = [row.key.name for row in key_binding.list_unbound_keys(now)]
    message = (
        f"{len(unbound)} keys speak for any agent: {named(unbound)}."
        if unbound
        else ("Keys that are bound to no agent are accepted, though there are none.")
    )
    return warn("agents' keys", message, "Press “Bind keys” on the page API keys.")


def _key_quotas(now: datetime) -> Check:
    limit = settings.KEY_BYTES_PER_DAY
    if not limit:
        return ok("what keys store", "keys have no limit (SIGNALBOX_KEY_MIB_PER_DAY is 0)")
    sums = key_quotas.stored_today(now)
    full = ApiKey.objects.filter(pk__in=[key_id for key_id, size in sums.items() if size >= limit]).order_by(
        "name"
    )
    if names := list(full.values_list("name", flat=True)):
        return warn(
            "what keys store",
            f"{len(names)} keys have reached their limit of {limit // MIB} MiB today: {named(names)}.",
            "Look at what they store, or raise SIGNALBOX_KEY_MIB_PER_DAY. Their calls are still decided.",
        )
    return ok("what keys store", f"none has reached {limit // MIB} MiB today")


def _credentials() -> Check:
    problems = []
    rows = McpCredential.objects.order_by("server_id", "kind", "name")
    for row in rows:
        try:
            credentials.value_of(row)
        except credentials.CredentialUnusable as problem:
            problems.append(str(problem.detail))
    told = "of the MCP servers' credentials cannot be used"
    if not problems and (problems := notifications.unusable() + push.unusable()):
        told = "of the addresses that messages are sent to cannot be used"
    if problems:
        return fail(
            "credentials",
            f"{len(problems)} {told}. {problems[0]}",
            "Restore the file credential_keys from a backup, set the variable, or enter the credential again.",
        )
    return ok("credentials", f"all {len(rows)} of the MCP servers' credentials can be used")


def _commands() -> Check:
    started = McpUpstream.objects.filter(transport=Transport.STDIO, enabled=True).order_by("server_id")
    servers = McpServer.objects.in_bulk([row.server_id for row in started])
    changed = [
        row.server_id
        for row in started
        if row.server_id in servers and not commands.is_accepted(servers[row.server_id], row)
    ]
    if changed:
        return warn(
            "commands",
            f"Commands of {len(changed)} MCP servers were not written by an admin here, so they are not started: "
            f"{named(changed)}.",
            "Check each on its page under MCP, and accept it there.",
        )
    return ok("commands", f"{len(started)} MCP servers are started here as an admin accepted them")


def _isolation() -> Check:
    started = McpUpstream.objects.filter(transport=Transport.STDIO, enabled=True).order_by("server_id")
    servers = list(started)
    if off := [row.server_id for row in servers if row.is_isolation_off]:
        words = (
            f"{named(off)} can read the keys and the database, and could decide: started without isolation."
        )
        return warn("isolation", words, "Switch isolation on, on each server's page under MCP.")
    try:
        mechanism = isolation.mechanism()
    except isolation.NotIsolated as refusal:
        if servers:
            return warn("isolation", f"{len(servers)} MCP servers are not started. {refusal.detail}", "")
        return ok("isolation", f"no MCP server is started here. {refusal.detail}")
    return ok("isolation", f"programs that MCP servers consist of run in {mechanism.value}")


def _open_database() -> Iterator[Check]:
    """Report MCP servers that could write into the database over the network, since it asks for no password there."""
    started = McpUpstream.objects.filter(transport=Transport.STDIO, enabled=True, network=Network.MACHINE)
    names = list(started.order_by("server_id").values_list("server_id", flat=True))
    if not names:
        return
    if (address := open_database.open_address(Network.MACHINE.value)) is None:
        yield ok("database password", "MCP servers do not reach the database, or not without a password")
        return
    words = f"PostgreSQL asks for no password at {address}, and MCP servers that reach it could decide: {named(names)}."
    yield warn("database password", words, open_database.REMEDY)


def _names_in_calls() -> Check:
    servers = sorted(McpServer.objects.exclude(pk=None).values_list("pk", flat=True))
    alike = Counter(name_in_calls(server) for server in servers)
    twins = [server for server in servers if alike[name_in_calls(server)] > 1]
    tools = (
        McpTool.objects.filter(gone_at=None).order_by("server_id", "name").values_list("server_id", "name")
    )
    mistaken = [f"{tool} of {server}" for server, tool in tools if read_as(server, tool, servers)]
    if ours := [server for server in servers if is_ours(server)]:
        words = f"Calls cannot tell these MCP servers from Signalbox's own gateway: {named(ours)}."
        return warn("names", words, "Register them under another name.")
    if twins:
        words = (
            f"Calls cannot tell these MCP servers apart, so /mcp serves none of their tools: {named(twins)}."
        )
        return warn("names", words, "Register all but one of them under another name.")
    if mistaken:
        words = f"Tools whose names in calls mean another MCP server's are not served: {named(mistaken)}."
        return warn("names", words, "Register one of the servers under another name.")
    return ok("names", f"calls can tell the tools of {len(servers)} MCP servers apart")


def _housekeeping(now: datetime) -> Check:
    pace = {job.lease: job.every for job in JOBS}
    overdue = Lease.objects.filter(name__in=pace, until__lt=now - OVERDUE)
    late = [name.removeprefix("job:") for name in overdue.values_list("name", flat=True)]
    if late:
        return fail(
            "housekeeping",
            f"Overdue: {named(sorted(late))}.",
            "Read the server's log. Restart the server.",
        )
    return ok("housekeeping", f"{len(pace)} jobs run on time")


def _audit_log(now: datetime) -> Iterator[Check]:
    """Check that the log is sealed, and that its checkpoints reach the places outside."""
    state = transparency.now_at(now)
    seal = "Find out what is wrong: python manage.py audit seal, then audit verify"
    if state.missing:
        yield fail("audit log", f"{state.missing} entries are missing that a checkpoint covers.", seal)
    elif state.late:
        yield warn("audit log", f"{state.waiting} entries wait to be sealed.", seal)
    else:
        yield ok("audit log", f"{state.sealed} of {state.size} entries are sealed")
    try:
        failing = [one.place for one in transparency.deliveries() if one.fails]
    except ValueError as problem:
        yield fail("audit checkpoints", str(problem), "Correct the setting and restart.")
        return
    if failing:
        yield warn(
            "audit checkpoints",
            f"Checkpoints do not reach {named(failing)}.",
            "The page Audit log, Verify says why.",
        )


def _events() -> Check:
    """Check that the events table has parts for new events (PostgreSQL), and that no event is outside them."""
    found = partitions.examine()
    again = "python manage.py partition_events"
    if found.limit is not None:
        return warn(
            "events",
            f"Putting the events table into parts was begun and not finished: it refuses ids from {found.limit}.",
            f"Finish it: {again}",
        )
    if found.outside:
        return warn("events", f"{found.outside} events are outside the table's parts.", f"Run: {again}")
    if found.parts and not found.free:
        return warn(
            "events",
            "The table has no part for the events to come; housekeeping makes them.",
            f"Run: {again}",
        )
    if not found.parts and found.newest > MANY_EVENTS:
        return warn(
            "events",
            f"About {found.newest} events are in one table. In parts it is faster, and old events are deleted at once.",
            f"The server may run meanwhile: {again}",
        )
    return ok(
        "events", f"in {found.parts} parts, {found.free} of them ahead" if found.parts else "in one table"
    )


def _search() -> Check:
    behind = search.behind()
    if behind > INDEX_BEHIND:
        return warn(
            "search",
            f"{behind} events are not indexed yet.",
            "Wait, or: python manage.py rebuild_search (slow)",
        )
    return ok("search", f"{behind} events wait to be indexed")
