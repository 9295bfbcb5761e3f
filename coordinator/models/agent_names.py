"""The names by which sessions, runs, requests and blueprints know an agent.

A name is linked to an agent, in this order: because it is the agent's id; because a person said so (`AgentName`);
because the id that follows from it is the agent's, which is how blueprints and agents find each other; because it is
the name of exactly one agent.

A link is for people who look. Grants, rules, budgets, brakes and keys never follow one: they go by the id that a call
came with, and nothing in `coordinator.policy` or `coordinator.edge` reads this to decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from django.db.models import Q

from coordinator.lib.identifiers import slugify_name_as_agent_id
from coordinator.models.agents import Agent, AgentName
from coordinator.models.runners import Blueprint
from coordinator.models.sessions import list_distinct_session_values

MOST_NAMES = 2000  # of sessions, that are looked at for those of one agent


class LinkReason(StrEnum):
    """Why a name is an agent's."""

    ID = "id"
    PERSON = "person"
    SAME_ID = "same-id"
    AGENT_NAME = "agent-name"


@dataclass(frozen=True, slots=True)
class LinkedAgent:
    """The agent that a name is linked to, and why."""

    agent_id: str
    agent_name: str
    reason: LinkReason


def load_linked_agents_by_name(names: Iterable[str | None]) -> dict[str, LinkedAgent]:
    """Return the agent of each name that is linked to one."""
    requested_names = {name for name in names if name and "\0" not in name}  # PostgreSQL has no NUL
    if not requested_names:
        return {}
    derived_ids = {name: slugify_name_as_agent_id(name) for name in requested_names}
    agents = dict(
        Agent.objects.filter(
            Q(pk__in=[*requested_names, *derived_ids.values()]) | Q(name__in=requested_names)
        ).values_list("pk", "name")
    )
    links = dict(AgentName.objects.filter(pk__in=requested_names).values_list("pk", "agent_id"))
    agents |= dict(Agent.objects.filter(pk__in=set(links.values()) - agents.keys()).values_list("pk", "name"))
    agents_by_name: dict[str, list[str]] = {}
    for agent_id, agent_name in agents.items():
        agents_by_name.setdefault(agent_name, []).append(agent_id)
    linked: dict[str, LinkedAgent] = {}
    for name in requested_names:
        called_so = agents_by_name.get(name, [])
        if name in agents:
            agent_id, reason = name, LinkReason.ID
        elif name in links:
            if links[name] is None:
                continue
            agent_id, reason = links[name], LinkReason.PERSON
        elif derived_ids[name] in agents:
            agent_id, reason = derived_ids[name], LinkReason.SAME_ID
        elif len(called_so) == 1:
            agent_id, reason = called_so[0], LinkReason.AGENT_NAME
        else:
            continue
        linked[name] = LinkedAgent(agent_id, agents[agent_id], reason)
    return linked


def find_linked_agent(name: str | None) -> LinkedAgent | None:
    """Return the agent that a name is linked to, if any."""
    return load_linked_agents_by_name([name]).get(name or "")


def list_all_agent_names() -> set[str]:
    """Return the names that sessions and blueprints know agents by, and those that a person linked."""
    return {
        *list_distinct_session_values("agent_name", MOST_NAMES),
        *Blueprint.objects.values_list("name", flat=True),
        *AgentName.objects.values_list("name", flat=True),
    }


def link_reasons_by_agent_name(agent_id: str) -> dict[str, LinkReason]:
    """Return every known name of an agent and why it is the agent's, its id first."""
    linked = load_linked_agents_by_name(list_all_agent_names())
    other_names = {name: link.reason for name, link in sorted(linked.items()) if link.agent_id == agent_id}
    return {agent_id: LinkReason.ID} | other_names


def list_names_of_same_agent(name: str) -> list[str]:
    """Return every known name of the agent that a name is linked to; the name alone where it is linked to none."""
    agent = find_linked_agent(name)
    return (
        [name] if agent is None else list(dict.fromkeys([*link_reasons_by_agent_name(agent.agent_id), name]))
    )


def agent_labels_by_id() -> dict[str, str]:
    """Return what each agent is called, by its id; with the id where several are called so."""
    names = dict(Agent.objects.exclude(pk=None).values_list("pk", "name"))
    shared = Counter(names.values())
    return {
        agent_id: name if shared[name] == 1 else f"{name} ({agent_id})" for agent_id, name in names.items()
    }


def list_agent_filter_choices(chosen: str | None = None) -> list[tuple[str, str]]:
    """Return what a filter by agent offers, with labels: agents that have sessions, and names that are nobody's.

    `chosen` means its agent, whichever of the agent's names it is.
    """
    names = list_distinct_session_values("agent_name", MOST_NAMES)
    linked = load_linked_agents_by_name([*names, chosen])
    choices = {name: name for name in [*names, chosen] if name and name not in linked}
    chosen_agent = linked.get(chosen or "")
    for agent in linked.values():
        is_chosen = chosen_agent is not None and agent.agent_id == chosen_agent.agent_id
        choices[chosen if chosen and is_chosen else agent.agent_id] = agent.agent_name
    shared = Counter(choices.values())
    labels = {key: label if shared[label] == 1 else f"{label} ({key})" for key, label in choices.items()}
    return sorted(labels.items(), key=lambda choice: (choice[1].lower(), choice[0]))
