"""In which mode a session begins: one in which a person is asked, unless somebody chose another."""

from __future__ import annotations

import re
from typing import Any

from coordinator.runner.errors import RunnerRefused
from coordinator.runner.startable import StartableAgent

# Modes of agents that we do not know, by the words for "nobody is asked".
UNASKED = re.compile(r"auto|yolo|bypass|full|dont.?ask|never|unrestricted|danger|^agent$", re.IGNORECASE)
# Those in which a person is asked; in the others the agent only reads, so they come second.
USUAL = (
    re.compile(r"^(default|ask|normal|build|code)$", re.IGNORECASE),
    re.compile(r"^(read.?only|plan)$", re.IGNORECASE),
)


def find_config_option(opened: dict[str, Any], category: str) -> dict[str, Any] | None:
    """Return an agent's config option of a category, `mode` or `model`."""
    options = opened.get("configOptions")
    for option in options if isinstance(options, list) else ():
        if isinstance(option, dict) and category in (option.get("category"), option.get("id")):
            return option
    return None


def find_mode_and_model_option_ids(opened: dict[str, Any]) -> dict[str, str]:
    """Return the ids of an agent's options that are its mode and its model, by `mode` and `model`."""
    options = {category: find_config_option(opened, category) for category in ("mode", "model")}
    return {
        category: option["id"]
        for category, option in options.items()
        if option is not None and isinstance(option.get("id"), str)
    }


def current_and_available_modes(opened: dict[str, Any]) -> tuple[str | None, list[str]]:
    """Return the current mode's id and the ids of all of them; (None, []) of an agent without modes."""
    modes = opened.get("modes")
    if isinstance(modes, dict) and isinstance(modes.get("availableModes"), list):
        ids = [mode["id"] for mode in modes["availableModes"] if isinstance(mode, dict) and "id" in mode]
        return modes.get("currentModeId"), ids
    option = find_config_option(opened, "mode")
    if option is None:
        return None, []
    return option.get("currentValue"), list_option_values(option)


def list_option_values(option: dict[str, Any]) -> list[str]:
    """Return the values that a config option may have, those in groups as well."""
    option_values: list[str] = []
    choices = option.get("options")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and isinstance(choice.get("options"), list):
            option_values += list_option_values(choice)
        elif isinstance(choice, dict) and isinstance(choice.get("value"), str):
            option_values.append(choice["value"])
    return option_values


def choose_initial_mode(agent: StartableAgent, opened: dict[str, Any], wanted_mode: str | None) -> str | None:
    """Return the mode to choose, None to leave it as it is. Raises RunnerRefused where none of them asks a person.

    `wanted_mode` is what somebody chose for this session.
    """
    current, ids = current_and_available_modes(opened)
    chosen = wanted_mode or agent.mode
    if chosen:
        if ids and chosen not in ids:
            raise RunnerRefused(f"{agent.title} has no mode {chosen!r}. It has: {', '.join(ids)}.")
        return chosen if chosen != current else None
    if not ids or current in agent.asking_modes:
        return None
    if not agent.asking_modes and current is not None and not UNASKED.search(current):
        return None
    asking = next((ask for ask in agent.asking_modes if ask in ids), None)
    if asking is None and not agent.asking_modes:
        asking = next((mode_id for usual in USUAL for mode_id in ids if usual.search(mode_id)), None)
    if asking is None:
        raise RunnerRefused(
            f"None of the modes of {agent.title} ({', '.join(ids)}) is known to ask a person. Name one in the"
            f" runner's settings: [agents.{agent.name}] mode = …"
        )
    return asking
