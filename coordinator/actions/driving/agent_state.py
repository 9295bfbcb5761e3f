"""The state that a driven agent reports: plan, mode, model, commands, title, usage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coordinator.actions.driving import drafts
from coordinator.actions.driving.runner_post import RunnerPost
from coordinator.actions.sessions import titles
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.driven_agent_updates import is_valid_usage_amount

MOST_ENTRIES = 500  # of a list that are kept

Taker = Callable[[RunnerPost, Mapping[str, Any]], None]


def set_driven_plan_without_saving(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    drafts.finish_agent_draft(post)
    post.driven.plan = mask_secrets_in_value(filter_dict_entries(fields.get("entries")))


def store_agent_mode(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    mode = fields.get("currentModeId")
    if not isinstance(mode, str) or mode == post.driven.mode:
        return
    if post.driven.mode is not None:
        drafts.finish_agent_draft(post)
        post.queue_event_for_writing("mode_changed", tool_input={"from": post.driven.mode, "to": mode})
    post.driven.mode = mode


def store_agent_config_update(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    store_agent_config_options(post, fields.get("configOptions"))


def store_agent_config_options(post: RunnerPost, options: Any) -> None:
    """Keep what can be set in the session; its mode and model are among it."""
    if not isinstance(options, list):
        return
    post.driven.config_options = filter_dict_entries(options)
    for option in post.driven.config_options:
        value = option.get("currentValue")
        if option.get("id") == "mode" and isinstance(value, str):
            store_agent_mode(post, {"currentModeId": value})
        elif option.get("id") == "model" and isinstance(value, str):
            post.driven.model = value


def store_agent_commands(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    post.driven.commands = filter_dict_entries(fields.get("availableCommands"))


def save_reported_session_title(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    title = fields.get("title")
    if isinstance(title, str) and title.strip():
        titles.save_titles_from_agents({post.session_id: title}, post.now)


def store_agent_usage(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    post.driven.usage = {**(post.driven.usage or {}), **clean_usage_fields(fields)}


def clean_usage_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    usage_fields = {
        name: fields[name] for name in ("used", "size") if is_valid_usage_amount(fields.get(name))
    }
    cost = parse_cost_fields_or_none(fields.get("cost"))
    return usage_fields if cost is None else {**usage_fields, "cost": cost}


def parse_cost_fields_or_none(reported: Any) -> dict[str, Any] | None:
    """Return a cost as it is kept; None where it names no amount that anything can cost."""
    if not isinstance(reported, Mapping) or not is_valid_usage_amount(reported.get("amount")):
        return None
    unit = reported.get("currency")
    return {"amount": reported["amount"], **({"currency": unit[:8]} if isinstance(unit, str) else {})}


def filter_dict_entries(value: Any) -> list[dict[str, Any]]:
    return (
        [entry for entry in value[:MOST_ENTRIES] if isinstance(entry, dict)]
        if isinstance(value, list)
        else []
    )


# By the kind of the update.
FACTS: dict[str, Taker] = {
    "plan": set_driven_plan_without_saving,
    "current_mode_update": store_agent_mode,
    "config_option_update": store_agent_config_update,
    "available_commands_update": store_agent_commands,
    "session_info_update": save_reported_session_title,
    "usage_update": store_agent_usage,
}
