"""What an agent says of itself and of where it stands: plan, mode, model, commands, title, what it has used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coordinator.actions import titles
from coordinator.actions.driving import drafts
from coordinator.actions.driving.runner_post import RunnerPost
from coordinator.secrets.masking import without_secrets
from coordinator.sessions.driving import is_amount

MOST_ENTRIES = 500  # of a list that are kept

Taker = Callable[[RunnerPost, Mapping[str, Any]], None]


def _plan(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    drafts.finish(told)
    told.driven.plan = without_secrets(_list(fields.get("entries")))


def _mode(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    mode = fields.get("currentModeId")
    if not isinstance(mode, str) or mode == told.driven.mode:
        return
    if told.driven.mode is not None:
        drafts.finish(told)
        told.event("mode_changed", tool_input={"from": told.driven.mode, "to": mode})
    told.driven.mode = mode


def _options(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    keep_options(told, fields.get("configOptions"))


def keep_options(told: RunnerPost, options: Any) -> None:
    """Keep what can be set in the session; its mode and model are among it."""
    if not isinstance(options, list):
        return
    told.driven.config_options = _list(options)
    for one in told.driven.config_options:
        value = one.get("currentValue")
        if one.get("id") == "mode" and isinstance(value, str):
            _mode(told, {"currentModeId": value})
        elif one.get("id") == "model" and isinstance(value, str):
            told.driven.model = value


def _commands(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    told.driven.commands = _list(fields.get("availableCommands"))


def _info(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    title = fields.get("title")
    if isinstance(title, str) and title.strip():
        titles.told({told.session_id: title}, told.now)


def _usage(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    told.driven.usage = {**(told.driven.usage or {}), **_plain(fields)}


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: fields[name] for name in ("used", "size") if is_amount(fields.get(name))}
    cost = cost_of(fields.get("cost"))
    return kept if cost is None else {**kept, "cost": cost}


def cost_of(told: Any) -> dict[str, Any] | None:
    """Return a cost as it is kept; None where it names no amount that anything can cost."""
    if not isinstance(told, Mapping) or not is_amount(told.get("amount")):
        return None
    unit = told.get("currency")
    return {"amount": told["amount"], **({"currency": unit[:8]} if isinstance(unit, str) else {})}


def _list(value: Any) -> list[dict[str, Any]]:
    return [one for one in value[:MOST_ENTRIES] if isinstance(one, dict)] if isinstance(value, list) else []


# By the kind of the update.
FACTS: dict[str, Taker] = {
    "plan": _plan,
    "current_mode_update": _mode,
    "config_option_update": _options,
    "available_commands_update": _commands,
    "session_info_update": _info,
    "usage_update": _usage,
}
