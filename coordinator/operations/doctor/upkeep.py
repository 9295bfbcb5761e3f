"""Upkeep: keys about to expire, jobs, files without messages, the search index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings

from coordinator.actions import notifications, search
from coordinator.actions.notifications import push
from coordinator.actions.people import key_binding, key_quotas, setup
from coordinator.identity.keys import accepts_keys_without_agent
from coordinator.lib.times import format_rough_duration
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.servers import commands, credentials, open_database
from coordinator.mcp.servers.names import (
    find_shadowing_server,
    is_reserved_gateway_server_name,
    name_in_calls,
)
from coordinator.models import ApiKey, Job, McpCredential, McpServer, McpTool, McpUpstream
from coordinator.models.gateway import Network, Transport
from coordinator.operations.doctor import (
    CheckResult,
    failed_check,
    join_names_up_to_limit,
    passed_check,
    stored_files,
    warning_check,
)
from coordinator.policy.deciders import decider_book as deciders
from coordinator.transparency import state as transparency

MIB = 1024 * 1024
EXPIRES_SOON = timedelta(days=14)
OVERDUE = timedelta(minutes=5)  # after the time that a job is due
MANY_ATTEMPTS = 3  # that fail one after the other
MOST_FAILING_NAMED = 3
INDEX_BEHIND = 20_000  # events; housekeeping takes on some 8,000 a second


def iterate_upkeep_checks(now: datetime, *, served: bool) -> Iterator[CheckResult]:
    """Yield the checks; `served` says whether a server runs that should have done its housekeeping."""
    yield check_people_can_sign_in()
    yield check_deciding_rules(now)
    yield check_expiring_keys(now)
    yield check_unbound_keys(now)
    yield check_key_quotas(now)
    yield check_credentials_can_be_decrypted()
    yield check_unaccepted_server_commands()
    yield check_server_isolation()
    yield from iterate_database_reach_checks()
    yield check_ambiguous_server_names()
    yield check_jobs(now) if served else passed_check("jobs", "no server is running to do it")
    yield from stored_files.iterate_stored_file_checks(now)
    yield check_search_index()
    yield from iterate_audit_log_checks(now)


def check_people_can_sign_in() -> CheckResult:
    if setup.is_setup_open():
        remedy = "Start `signalbox serve`, which prints a link for the first administrator."
        return warning_check("people", "Nobody can sign in yet.", remedy)
    return passed_check("people", "somebody can sign in")


def check_deciding_rules(now: datetime) -> CheckResult:
    book = deciders.load_decider_book(now)
    troubles = book.find_rule_problems()
    if troubles:
        return failed_check(
            "who decides",
            f"{troubles[0]}{f' {len(troubles) - 1} more rows are like it.' if troubles[1:] else ''}",
            "Change the row on the page Who decides, or put active approvers into its group.",
        )
    return passed_check(
        "who decides", f"somebody decides each of {len(book.rules)} rows" if book.rules else "every approver"
    )


def check_expiring_keys(now: datetime) -> CheckResult:
    live = ApiKey.objects.filter(revoked_at__isnull=True, expires_at__gt=now)
    soon = [
        f"{key.name} (in {format_rough_duration(key.expires_at - now)})"
        for key in live.filter(expires_at__lte=now + EXPIRES_SOON).order_by("expires_at")
    ]
    if soon:
        return warning_check(
            "keys",
            f"{len(soon)} expire soon: {join_names_up_to_limit(soon)}.",
            "Make new ones: signalbox manage apikey create …",
        )
    return passed_check("keys", "none expires within 14 days")


def check_unbound_keys(now: datetime) -> CheckResult:
    if not accepts_keys_without_agent():
        return passed_check("agents' keys", "each is bound to the agents that it speaks for")
    unbound = [row.key.name for row in key_binding.list_unbound_keys(now)]
    message = (
        f"{len(unbound)} keys speak for any agent: {join_names_up_to_limit(unbound)}."
        if unbound
        else ("Keys that are bound to no agent are accepted, though there are none.")
    )
    return warning_check("agents' keys", message, "Press “Bind keys” on the page API keys.")


def check_key_quotas(now: datetime) -> CheckResult:
    limit = settings.KEY_BYTES_PER_DAY
    if not limit:
        return passed_check("what keys store", "keys have no limit (SIGNALBOX_KEY_MIB_PER_DAY is 0)")
    sums = key_quotas.bytes_stored_today_by_key(now)
    full = ApiKey.objects.filter(pk__in=[key_id for key_id, size in sums.items() if size >= limit]).order_by(
        "name"
    )
    if names := list(full.values_list("name", flat=True)):
        return warning_check(
            "what keys store",
            f"{len(names)} keys have reached their limit of {limit // MIB} MiB today: {join_names_up_to_limit(names)}.",
            "Look at what they store, or raise SIGNALBOX_KEY_MIB_PER_DAY. Their calls are still decided.",
        )
    return passed_check("what keys store", f"none has reached {limit // MIB} MiB today")


def check_credentials_can_be_decrypted() -> CheckResult:
    problems = []
    rows = McpCredential.objects.order_by("server_id", "kind", "name")
    for row in rows:
        try:
            credentials.decrypt_credential_value(row)
        except credentials.CredentialUnusable as problem:
            problems.append(str(problem.detail))
    problem_text = "of the MCP servers' credentials cannot be used"
    if not problems and (
        problems := notifications.list_undecryptable_address_problems()
        + push.list_undecryptable_push_key_problems()
    ):
        problem_text = "of the addresses that messages are sent to cannot be used"
    if problems:
        return failed_check(
            "credentials",
            f"{len(problems)} {problem_text}. {problems[0]}",
            "Restore the file credential_keys from a backup, set the variable, or enter the credential again.",
        )
    return passed_check("credentials", f"all {len(rows)} of the MCP servers' credentials can be used")


def check_unaccepted_server_commands() -> CheckResult:
    started = McpUpstream.objects.filter(transport=Transport.STDIO, enabled=True).order_by("server_id")
    servers = McpServer.objects.in_bulk([row.server_id for row in started])
    changed = [
        row.server_id
        for row in started
        if row.server_id in servers and not commands.has_admin_accepted_command(servers[row.server_id], row)
    ]
    if changed:
        return warning_check(
            "commands",
            f"Commands of {len(changed)} MCP servers were not written by an admin here, so they are not started: "
            f"{join_names_up_to_limit(changed)}.",
            "Check each on its page under MCP, and accept it there.",
        )
    return passed_check("commands", f"{len(started)} MCP servers are started here as an admin accepted them")


def check_server_isolation() -> CheckResult:
    started = McpUpstream.objects.filter(transport=Transport.STDIO, enabled=True).order_by("server_id")
    servers = list(started)
    if off := [row.server_id for row in servers if row.is_isolation_off]:
        problem_text = (
            f"{join_names_up_to_limit(off)} can read the keys and the database, and could decide: started without"
            " isolation."
        )
        return warning_check(
            "isolation", problem_text, "Switch isolation on, on each server's page under MCP."
        )
    try:
        mechanism = isolation.require_isolation_mechanism()
    except isolation.IsolationUnavailable as refusal:
        if servers:
            return warning_check(
                "isolation", f"{len(servers)} MCP servers are not started. {refusal.detail}", ""
            )
        return passed_check("isolation", f"no MCP server is started here. {refusal.detail}")
    return passed_check("isolation", f"programs that MCP servers consist of run in {mechanism.value}")


def iterate_database_reach_checks() -> Iterator[CheckResult]:
    """Report MCP servers that could write into the database over the network, since it asks for no password there."""
    started = McpUpstream.objects.filter(transport=Transport.STDIO, enabled=True, network=Network.MACHINE)
    names = list(started.order_by("server_id").values_list("server_id", flat=True))
    if not names:
        return
    if (address := open_database.probe_reachable_passwordless_database(Network.MACHINE.value)) is None:
        yield passed_check(
            "database password", "MCP servers do not reach the database, or not without a password"
        )
        return
    problem_text = (
        f"PostgreSQL asks for no password at {address}, and MCP servers that reach it could decide:"
        f" {join_names_up_to_limit(names)}."
    )
    yield warning_check("database password", problem_text, open_database.REMEDY)


def check_ambiguous_server_names() -> CheckResult:
    servers = sorted(McpServer.objects.exclude(pk=None).values_list("pk", flat=True))
    alike = Counter(name_in_calls(server) for server in servers)
    twins = [server for server in servers if alike[name_in_calls(server)] > 1]
    tools = (
        McpTool.objects.filter(gone_at=None).order_by("server_id", "name").values_list("server_id", "name")
    )
    mistaken = [
        f"{tool} of {server}" for server, tool in tools if find_shadowing_server(server, tool, servers)
    ]
    if own_servers := [server for server in servers if is_reserved_gateway_server_name(server)]:
        names = join_names_up_to_limit(own_servers)
        problem_text = f"Calls cannot tell these MCP servers from Signalbox's own gateway: {names}."
        return warning_check("names", problem_text, "Register them under another name.")
    if twins:
        problem_text = (
            "Calls cannot tell these MCP servers apart, so /mcp serves none of their tools:"
            f" {join_names_up_to_limit(twins)}."
        )
        return warning_check("names", problem_text, "Register all but one of them under another name.")
    if mistaken:
        tool_names = join_names_up_to_limit(mistaken)
        problem_text = f"Tools whose names in calls mean another MCP server's are not served: {tool_names}."
        return warning_check("names", problem_text, "Register one of the servers under another name.")
    return passed_check("names", f"calls can tell the tools of {len(servers)} MCP servers apart")


def check_jobs(now: datetime) -> CheckResult:
    """Check that no job waits for long after its time, and that none fails again and again."""
    overdue = sorted(Job.objects.overdue_at(now, OVERDUE).values_list("name", flat=True).distinct())
    if overdue:
        return failed_check(
            "jobs",
            f"Overdue: {join_names_up_to_limit(overdue)}.",
            "Read the server's log. Restart the server.",
        )
    failing = Job.objects.filter(error__isnull=False, attempts__gte=MANY_ATTEMPTS).order_by("name", "id")
    if failing:
        failures = [f"{job}: {job.error}" for job in failing[:MOST_FAILING_NAMED]]
        return warning_check("jobs", f"Jobs fail: {'; '.join(failures)}", "Look at Admin, Jobs.")
    return passed_check("jobs", f"{Job.objects.count()} jobs, none of them overdue")


def iterate_audit_log_checks(now: datetime) -> Iterator[CheckResult]:
    """Check that the log is sealed, and that its checkpoints reach the places outside."""
    state = transparency.load_log_state(now)
    seal = "Find out what is wrong: signalbox manage audit seal, then audit verify"
    if state.missing_count:
        yield failed_check(
            "audit log", f"{state.missing_count} entries are missing that a checkpoint covers.", seal
        )
    elif state.late:
        yield warning_check("audit log", f"{state.unsealed_count} entries wait to be sealed.", seal)
    else:
        yield passed_check("audit log", f"{state.sealed_count} of {state.size} entries are sealed")
    try:
        failing = [
            delivery.place
            for delivery in transparency.list_checkpoint_deliveries()
            if delivery.error is not None
        ]
    except ValueError as problem:
        yield failed_check("audit checkpoints", str(problem), "Correct the setting and restart.")
        return
    if failing:
        yield warning_check(
            "audit checkpoints",
            f"Checkpoints do not reach {join_names_up_to_limit(failing)}.",
            "The page Audit log, Verify says why.",
        )


def check_search_index() -> CheckResult:
    behind = search.count_unindexed_events()
    if behind > INDEX_BEHIND:
        return warning_check(
            "search",
            f"{behind} events are not indexed yet.",
            "Wait, or: signalbox manage rebuild_search (slow)",
        )
    return passed_check("search", f"{behind} events wait to be indexed")
