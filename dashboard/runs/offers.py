"""What online runners offer, for the form that starts a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.utils import timezone

from coordinator.models import Runner
from coordinator.runs import offers
from coordinator.runs.liveness import is_runner_alive

MOST_OFFERS = 200


@dataclass(frozen=True, slots=True)
class OnlineRunnerOffers:
    """The agents, directories and abilities that online runners offer."""

    agents: list[tuple[str, str]]  # name, and title with version and hosts
    directories: list[str]
    missing: list[tuple[str, str]]  # title of an agent that no runner has, and how to install it
    worktrees: bool  # whether a runner can create work trees
    by_id: dict[str, Runner]  # the runners that offer agents
    online_count: int  # all online runners, also those that offer no agents
    ability_labels: list[tuple[str, list[str]]]  # title and host of an agent, and its reported abilities

    @property
    def runner_count(self) -> int:
        """The number of runners that offer agents."""
        return len(self.by_id)

    @property
    def runner_choices(self) -> list[tuple[str, str]]:
        """The id and name of each runner.

        The name is the host, with the directory and the profile if the host has several runners.
        """
        per_host = Counter(runner.hostname for runner in self.by_id.values())
        per_folder = Counter((runner.hostname, runner.project_dir) for runner in self.by_id.values())
        return [
            (
                runner_id,
                format_runner_name(
                    one,
                    with_folder=per_host[one.hostname] > 1,
                    with_profile=per_folder[one.hostname, one.project_dir] > 1,
                ),
            )
            for runner_id, one in self.by_id.items()
        ][:MOST_OFFERS]

    @classmethod
    def load_online_offers(cls) -> OnlineRunnerOffers:
        """Return what online runners offer now. Executes two queries."""
        now = timezone.now()
        online = [
            missing_agent
            for missing_agent in Runner.objects.filter(deregistered_at__isnull=True)
            if is_runner_alive(missing_agent, now)
        ]
        runner_offers = offers.load_offers_by_runner_id(runner.pk for runner in online)
        hosts: dict[str, list[str]] = {}
        titles: dict[str, str] = {}
        directories: dict[str, None] = {}
        missing: dict[str, str] = {}
        ability_labels: dict[str, list[str]] = {}
        for runner in online:
            offered = runner_offers.get(runner.pk)
            for agent in offers.list_agents_in_offers(offered):
                title_parts = [str(agent.get("title") or agent["name"]), str(agent.get("version") or "")]
                titles.setdefault(agent["name"], " ".join(filter(None, title_parts)))
                hosts.setdefault(agent["name"], []).append(runner.hostname)
                if agent_abilities := offers.list_agent_abilities(agent):
                    agent_title = str(agent.get("title") or agent["name"])
                    ability_labels[f"{agent_title} on {runner.hostname}"] = agent_abilities
            directories |= dict.fromkeys(offers.list_directories_in_offers(offered))
            for agent in offers.list_agents_missing_on_machine(offered):
                missing.setdefault(str(agent.get("title") or agent["name"]), str(agent.get("how") or ""))
        known_titles = {title.partition(" ")[0] for title in titles.values()}
        return cls(
            [(name, f"{titles[name]} on {format_host_list(hosts[name])}") for name in titles][:MOST_OFFERS],
            list(directories)[:MOST_OFFERS],
            [one for one in missing.items() if one[0] not in known_titles][:MOST_OFFERS],
            any(isinstance(one, dict) and one.get("worktrees") is True for one in runner_offers.values()),
            {one.pk: one for one in online if one.pk in runner_offers},
            len(online),
            list(ability_labels.items())[:MOST_OFFERS],
        )


def format_runner_name(runner: Runner, *, with_folder: bool, with_profile: bool) -> str:
    name_parts = [
        runner.hostname,
        f"in {runner.project_dir}" if with_folder else "",
        f"({runner.executor_profile})" if with_profile else "",
    ]
    return " ".join(filter(None, name_parts))


def format_host_list(hosts: list[str]) -> str:
    own = list(dict.fromkeys(hosts))
    return ", ".join(own[:2]) + (f" and {len(own) - 2} more" if len(own) > 2 else "")
