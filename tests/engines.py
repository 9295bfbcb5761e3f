"""Which tests one engine is enough for: CI runs them on SQLite alone.

On PostgreSQL run all tests about what the database does: events, the feed, search, the schema, claims and locks,
votes and grants as they are written, budgets' sums, housekeeping, parts, moving, importing, backups. Beside them
every page, list and door and every table of the admin is asked there once with odd rows (`foreign/`,
`guards/test_every_url.py`, `admin/test_every_table.py`, the recorded traffic in `wire/`). What is named here goes
through the same queries again to look at something else.

`same_statements.txt` names more of that kind: tests of which a measurement says that they send no statement but such as
others send on PostgreSQL (tests/cover.py).
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

SERVED = frozenset({"serve", "served", "one_server", "shared_server", "served_template"})
# What names of fixtures and words of a test file say that its tests meet a database.
WITH_DATABASE = SERVED | {"db", "transactional_db"}
MEETS_DATABASE = re.compile(r"subprocess|manage\(|call_command|postgres|sqlite|DATABASE|tests\.served")
TESTS = Path(__file__).parent
SAME_STATEMENTS = TESTS / "same_statements.txt"

# Beginnings of nodes' ids.
OTHER_SUBJECTS = (
    # how a page looks and reads
    "admin/test_agents.py",
    "admin/test_every_table.py::test_a_row",
    "admin/test_permission_boxes.py",
    "admin/test_plugins.py",
    "admin/test_query_counts.py",
    "agents/test_pages.py",
    "approvals/test_inbox.py",
    "deciders/test_page.py",
    "docs/",
    "foreign/test_any_value.py::test_the_admin_shows_every_row",
    "edge/test_downloads.py",
    "keys/test_page.py",
    "mcp/test_discovery.py",
    "mcp/test_gateway_settings.py",
    "mcp/test_pages.py",
    "pages/",
    "plugins/test_pages.py",
    "runs/test_newest_pages.py",
    "runs/test_pages.py",
    "sessions/test_page.py",
    "timeline/test_news.py",
    "transparency/test_pages.py",
    # who is let in, and who may what
    "accounts/test_own_account.py",
    "accounts/test_proof.py",
    "accounts/test_signing_in.py",
    "accounts/test_stolen_cookie.py",
    "admin/test_users.py",
    "admin/test_view_only.py",
    "approvals/test_only_people_decide.py",
    "deciders/test_who_may_decide.py",
    "guards/test_answers.py",
    "guards/test_caches.py",
    "guards/test_deployment.py",
    "guards/test_edge_doors.py",
    "guards/test_every_url.py::test_the_admin_is_for_admins",  # its tables: admin/test_every_table.py
    "guards/test_unproven.py",
    "guards/test_whose.py",
    "guards/test_whose_sessions.py::test_who_may_not",
    "keys/test_refusals.py",
    "openid/test_attacks.py",
    "openid/test_signing_in.py",
    "passkeys/test_confirming.py",
    "operator/test_shared_user.py",
    # foreign and hostile text, and what is masked in it
    "approvals/test_what_was_judged.py",
    "bodies/",
    "driving/test_hostile_agents.py",
    "gateway/test_rude_servers.py",
    "guards/test_smuggling.py",
    "hostile/",
    "importing/test_hostile_sources.py",
    "push/test_hostile_forms.py",
    "secrets/test_doors.py",
    "secrets/test_running.py",
    # other programs' words: hooks, transcripts and telemetry, as they are told by recordings
    "claude_code/test_deciding.py",
    "claude_code/test_doctor.py",
    "claude_code/test_failing_closed.py",
    "claude_code/test_rules.py",
    "claude_code/test_suggestions.py",
    "claude_code/test_telemetry.py",
    "claude_code/test_told_to_wait.py::test_a_denial",
    "claude_code/test_told_to_wait.py::test_a_headless_run",
    "claude_code/test_told_to_wait.py::test_an_agent_started_anew",
    "claude_code/test_told_to_wait.py::test_what_may_not_heed_it",
    "claude_code/test_shell_lines.py",
    "dialects/",
    "timeline/test_refused_calls.py",
    "transcripts/",
    # the gateway between agents and MCP servers
    "access/test_check_door.py",
    "gateway/test_all_servers.py",
    "gateway/test_beside.py",
    "gateway/test_bound_calls.py",
    "gateway/test_many_values.py",
    "gateway/test_methods.py",
    "gateway/test_beside_for_real.py",
    "gateway/test_handed_to_agents.py",
    "gateway/test_held_calls.py::test_a_client_that_opens_addresses",
    "gateway/test_held_calls.py::test_a_person_s_no",
    "gateway/test_held_calls.py::test_an_older_client",
    "gateway/test_held_calls.py::test_the_verdict_reaches_the_caller",
    "gateway/test_elicitation.py::test_a_bare_yes",
    "gateway/test_elicitation.py::test_a_declined_question",
    "gateway/test_elicitation.py::test_a_question_that_is_not_answered",
    "gateway/test_elicitation.py::test_a_rule_declines",
    "gateway/test_elicitation.py::test_an_address",
    "gateway/test_lost_sessions.py",
    "gateway/test_odd_listings.py",
    "gateway/test_open_streams.py",
    "gateway/test_passing.py",
    "gateway/test_questions.py",
    "gateway/test_sign_ins.py::test_a_server",
    "gateway/test_sign_ins.py::test_a_stolen",
    "gateway/test_sign_ins.py::test_an_answer_of_another",
    "gateway/test_sign_ins.py::test_no_token_goes",
    "gateway/test_sign_ins.py::test_only_an_administrator",
    "gateway/test_tool_search.py",
    "gateway/test_told_to_who_is_there.py",
    # sockets, processes, files, sandboxes and clients
    "client/",
    "connecting/test_addresses_for_agents.py",
    "connecting/test_connect.py",
    "connecting/test_gateway.py",
    "connecting/test_rewritten.py",
    "driving/test_changes.py",
    "edge/test_early_stop.py",
    "hosting/",
    "house/",
    "importing/test_damaged_sources.py",  # the source is SQLite's file, whatever it is read into
    "importing/test_sources_in_use.py",
    "live/test_crash.py::test_a_restart_under_load",  # how PostgreSQL is left in the middle, the kills there show
    "live/test_crash.py::test_new_workers_take_over",
    "live/test_early_refusals.py",
    "live/test_limits.py::test_beyond_the_limit",
    "live/test_limits.py::test_a_slow_reader",
    "live/test_limits.py::test_headers",
    "live/test_limits.py::test_without_keys",
    "live/test_odd_addresses.py",
    "live/test_shutdown.py",
    "operator/test_doctor.py::test_a_database_that_is_not_there",  # a file of SQLite's
    "operator/test_install_service.py",
    "operator/test_logs.py",
    "operator/test_metrics.py::test_behind_tls",
    "operator/test_metrics.py::test_every_worker_counts",
    "operator/test_metrics.py::test_figures_are_for",
    "runner/test_changes.py",
    "runner/test_tokens.py",  # OpenCode's own database
    "runner/test_served.py::test_over_a_restart",  # claims, verdicts and events: runs/, approvals/, live/
    "sandbox/",
    "server/test_bad_start.py",
    "server/test_listening.py",
    "server/test_private_data.py",
    "server/test_serve.py::test_a_first_start",  # on a file of SQLite's
    "server/test_serve.py::test_killed_worker",
    "server/test_serve.py::test_no_link",
    "server/test_serve.py::test_stops_within",
    "server/test_what_is_loaded.py",
    "transparency/test_verifier.py",
    "wire/test_example_runner.py",
    "wire/test_newest_traffic.py",
    "wire/test_side_by_side.py",
    # what a message says and whom it is for
    "approvals/test_always.py",
    "budgets/test_messages.py",
    "contract/test_openapi.py",
    "notifications/test_hearing.py",
    "notifications/test_quiet_hours.py",
    "notifications/test_services.py",
    "notifications/test_words.py",
    "notifications/test_channels.py",
    # the same statements as others of their package, many times
    "calls/",
    "gateway/test_call_limits.py::test_limits_that_cannot_be_used",
    "gateway/test_server_requests.py",
    "importing/test_sent_transcripts.py",  # importing/test_import.py writes them
    "sdks/",
    "usage/test_emitters.py",
    # what sends no statement but a test's own that no other test sends on PostgreSQL: measured on 2026-11-27
    "access/test_api.py",
    "accounts/test_session_store.py",
    "accounts/test_slowed_guessing.py",
    "access/test_matrix_property.py",
    "access/test_preview.py",
    "access/test_requests.py",
    "admin/test_subjects.py",
    "agents/test_power.py",
    "approvals/test_conformance.py",
    "approvals/test_lookalikes.py",
    "approvals/test_questions.py",
    "approvals/test_taking_turns.py::test_over_the_limit_a_call",
    "chat/test_posting.py",
    "claude_code/test_background_tasks.py",
    "edge/test_turns.py",
    "edge/test_viewers.py",
    "guards/test_webhooks.py",
    "demo/",  # schema/test_query_plans.py fills one there
    "keys/test_command.py",
    "keys/test_conformance.py",
    "mcp/test_tool_listings.py",
    "overview/test_overview.py",
    "runs/test_choosing_a_runner.py",
    "runs/test_demands.py",
    "runs/test_life_of_a_run.py",
    "runs/test_procedural_agents.py",
    "sessions/test_no_negative_times.py",
    "timeline/test_ended_calls.py",
    "timeline/test_milestones.py",
    "timeline/test_model_changes.py",
)


def one_is_enough(item: pytest.Item) -> bool:
    """Say whether the test shows nothing of the database that another engine could do otherwise."""
    return (
        item.nodeid.removeprefix("tests/").startswith(OTHER_SUBJECTS)
        or not read_same_statements().isdisjoint(
            {item.nodeid.partition("::")[0], item.nodeid.partition("[")[0]}
        )
        or not _meets_database(item)
    )


def one_is_enough_for_all_of(path: Path) -> bool:
    """Say whether that holds for all tests of a file, so that it need not be read."""
    if not path.is_relative_to(TESTS):
        return False
    name = f"{path.relative_to(TESTS)}"
    return name.startswith(OTHER_SUBJECTS) or f"tests/{name}" in read_same_statements()


@functools.cache
def read_same_statements() -> frozenset[str]:
    """Return the names of files and tests that SAME_STATEMENTS lists."""
    return frozenset(SAME_STATEMENTS.read_text().splitlines())


def _meets_database(item: pytest.Item) -> bool:
    """Say whether the test may meet a database; a file that names one, or starts a program, counts as a whole."""
    fixtures = frozenset(getattr(item, "fixturenames", ()))
    if item.get_closest_marker("django_db") or fixtures & WITH_DATABASE:
        return True
    return _text_meets_database(item.path)


@functools.cache
def _text_meets_database(path: Path) -> bool:
    return MEETS_DATABASE.search(path.read_text()) is not None
