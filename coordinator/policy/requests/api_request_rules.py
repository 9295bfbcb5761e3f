"""The rules' decision on a call that a program asks about by the API (`POST /api/permission-requests`)."""

from __future__ import annotations

from datetime import datetime

from coordinator.policy.grants import managed
from coordinator.policy.requests.approvals import PermissionSubject
from coordinator.policy.rules import history_queries, tool_rules
from coordinator.policy.rules.call_history import TimedCall
from coordinator.policy.rules.call_text import (
    CallText,
    build_requested_call_text,
    copy_call_text_with_folder,
    replace_surrogates,
)
from coordinator.policy.rules.tool_rules import NO_OPINION, Ruling
from coordinator.sessions.agent_programs import AGENT_TITLES


def judge_requested_call_by_rules(
    subject: PermissionSubject,
    agent_id: str | None,
    folder: str | None,
    now: datetime,
    *,
    session_id: str | None = None,
) -> Ruling:
    """Return what the saved rules say of the call that is asked for; no opinion where none is named."""
    if not subject.tool_name:
        return NO_OPINION
    rules = tool_rules.load_saved_tool_rules()
    if not rules:
        return NO_OPINION
    tool = replace_surrogates(subject.tool_name)
    text = build_requested_call_text(tool, subject.tool_input, subject.target_resource or "")
    program = subject.plugin_id if subject.plugin_id in AGENT_TITLES else ""
    servers = managed.load_managed_servers(now).servers
    text = copy_call_text_with_folder(text, folder)
    needs = tool_rules.find_history_needs_of_rules(rules, tool, text, agent_id, program, servers=servers)
    if needs and isinstance(text, CallText):
        moment = TimedCall(session_id or "", tool, subject.tool_input, now, folder=folder)
        text = text.copy_with_call_history(history_queries.evaluate_history_conditions(needs, moment))
    return tool_rules.tool_ruling_or_no_opinion(rules, tool, text, agent_id, program, servers=servers)
