"""Which runs a runner that drives agents takes: those for an agent that it has, in a folder that it may work in."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from coordinator.models import DrivenSession, Run, Runner, RunnerOffers

# The agents by the names that runners use, and what their hooks' dialects are called (agent_programs.AGENT_TITLES).
PROGRAMS = {"claude": "claude-code"}
# What a run to such a runner may be ordered with beside its prompt.
PARAMETERS = ("agent", "images", "mode", "model", "config", "worktree", "fork_of")
# In some modes an agent reviews itself: choosing one is for people.
FOR_PEOPLE = ("mode", "config")


def list_agents_in_offers(offers: Any) -> list[dict[str, Any]]:
    """Return the agents that are offered, each with a name."""
    return list_offer_entries_with_names(offers, "agents")


# What an agent may say that it can do, in the words of pages.
ABILITIES = {
    "images": "images in prompts",
    "audio": "audio in prompts",
    "files": "files in prompts",
    "resumes": "resumes conversations",
    "forks": "forks conversations",
    "mcp_over_http": "MCP over HTTP",
}
MOST_LOGINS = 5


def list_agent_abilities(agent_offer: Mapping[str, Any]) -> list[str]:
    """Return what an offered agent said that it can do, in words; nothing of one that was not asked."""
    abilities = agent_offer.get("abilities")
    if not isinstance(abilities, dict):
        return []
    listed = [label for name, label in ABILITIES.items() if abilities.get(name) is True]
    logins = abilities.get("logins")
    names = [name for name in logins if isinstance(name, str)] if isinstance(logins, list) else []
    if names:
        listed.append(f"may ask to sign in ({', '.join(names[:MOST_LOGINS])})")
    return listed or ["text in prompts alone"]


def list_agents_missing_on_machine(offers: Any) -> list[dict[str, Any]]:
    """Return the agents that the runner knows and its machine has not, each with a name and how to get it."""
    return list_offer_entries_with_names(offers, "missing")


def list_offer_entries_with_names(offers: Any, name: str) -> list[dict[str, Any]]:
    listed_value = offers.get(name) if isinstance(offers, Mapping) else None
    listed = listed_value if isinstance(listed_value, list) else []
    return [entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("name"), str)]


def list_directories_in_offers(offers: Any) -> list[str]:
    """Return the folders in which the runner may work, with all that is in them."""
    directories = offers.get("directories") if isinstance(offers, Mapping) else None
    return (
        [directory for directory in directories if isinstance(directory, str) and directory]
        if isinstance(directories, list)
        else []
    )


def directories_contain_folder(directories: Iterable[str], folder: str) -> bool:
    """Say whether a folder is one of these, or in one of them."""
    wanted_folder = posixpath.normpath(folder)
    return any(
        wanted_folder == directory or wanted_folder.startswith(directory.rstrip("/") + "/")
        for directory in map(posixpath.normpath, directories)
    )


def load_offers_by_runner_id(runner_ids: Iterable[str]) -> dict[str, Any]:
    """Return what these runners offer, by id; those that offer nothing of the kind are left out."""
    return dict(RunnerOffers.objects.filter(pk__in=list(runner_ids)).values_list("pk", "offers"))


def ordered_agent_name(run: Run) -> str | None:
    """Return for which agent a run was ordered; None where it does not say, or any will do."""
    ordered_with = getattr(run, "ordered_with", None)
    return agent_name_in_parameters(ordered_with.parameters) if ordered_with is not None else None


def agent_name_in_parameters(parameters: Any) -> str | None:
    """Return the agent that the parameters of a run name."""
    agent = parameters.get("agent") if isinstance(parameters, dict) else None
    return agent if isinstance(agent, str) else None


def load_run_agent_brake_names(run: Run, runner: Runner | None) -> set[str | None]:
    """Return the names by which a brake may mean a run's agent: where none is chosen, of all that the runner offers."""
    offered = load_offers_by_runner_id([runner.pk]).get(runner.pk) if runner is not None else None
    return agent_names_for_run(run, load_agents_chosen_for_run(run), runner, offered)


def load_agents_chosen_for_run(run: Run) -> set[str]:
    """Return the agents that were chosen for a run: when it was ordered, and by its session. One query."""
    driven = DrivenSession.objects.filter(pk=run.session_id).values_list("agent", flat=True).first()
    return {agent_name for agent_name in (ordered_agent_name(run), driven) if agent_name is not None}


def agent_names_for_run(run: Run, chosen: set[str], runner: Runner | None, offers: Any) -> set[str | None]:
    """Return what `load_run_agent_brake_names` does, where it is known what was chosen and what the runner offers."""
    names = chosen or {agent_offer["name"] for agent_offer in list_agents_in_offers(offers)}
    profile = runner.executor_profile if runner is not None else None
    return {run.agent_name, profile, *names, *(PROGRAMS.get(name) for name in names)}


def describe_missing_offer(offers: Any, agent: str | None, folder: str | None) -> str:
    """Return what of a run a runner with these offers (None: it has none) cannot serve; empty where it can."""
    if agent is not None and agent not in {
        agent_offer["name"] for agent_offer in list_agents_in_offers(offers)
    }:
        return f"agent {agent}"
    directories = list_directories_in_offers(offers)
    if offers is not None and folder and directories and not directories_contain_folder(directories, folder):
        return f"directory {folder}"
    return ""
