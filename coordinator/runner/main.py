"""`signalbox runner`: carries out runs on this machine. HTTP alone; nothing else of ours, and no Django."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.runner import options, startable
from coordinator.runner.errors import RunnerRefused
from coordinator.runner.options import RunnerOptions

USAGE_ERROR = 2
NEEDS = "The runner needs two more packages: pip install agent-client-protocol httpx"


def run(arguments: Sequence[str]) -> int:
    """Run until stopped; returns the exit code."""
    # What an agent says must not fill our log, and neither what libraries note of it.
    logging.basicConfig(format="%(message)s", level=logging.CRITICAL, stream=sys.stderr)
    logging.getLogger("signalbox.runner").setLevel(logging.INFO)
    try:
        parsed_options, only_list = options.parse_runner_arguments(arguments, os.environ)
        startable_agents, missing = startable.find_startable_and_missing_agents(parsed_options.agents)
        if only_list and not any(agent.is_configured for agent in startable_agents):
            print_runner_summary(parsed_options, startable_agents, missing)
            return 0
        return print_summary_and_run_runner(parsed_options, startable_agents, missing, only_list=only_list)
    except RunnerRefused as problem:
        sys.stderr.write(f"{problem}\n")
        return USAGE_ERROR


def print_runner_summary(
    options: RunnerOptions,
    startable_agents: Sequence[startable.StartableAgent],
    missing: Sequence[Mapping[str, Any]],
) -> None:
    for agent in startable_agents:
        sys.stdout.write(f"found    {agent.title} {agent.version}{format_agent_abilities_suffix(agent)}\n")
    for missing_agent in missing:
        sys.stdout.write(f"missing  {missing_agent['title']}: {missing_agent['how']}\n")
    sys.stdout.write(f"works in {', '.join(options.directories)}, for {options.url}\n")
    sys.stdout.flush()


def format_agent_abilities_suffix(agent: startable.StartableAgent) -> str:
    """Return what an agent that was asked said that it can do, for the summary."""
    abilities = [name for name, value in (agent.abilities or {}).items() if value is True]
    return f" ({', '.join(abilities).replace('_', ' ')})" if abilities else ""


def print_summary_and_run_runner(
    options: RunnerOptions,
    startable_agents: list[startable.StartableAgent],
    missing: list[dict[str, Any]],
    *,
    only_list: bool = False,
) -> int:
    """Ask the configured agents what they can do, print what there is, and work until stopped; return the exit code."""
    try:
        # Only who works needs them.
        from coordinator.runner import guarded_processes, probing  # noqa: PLC0415
        from coordinator.runner.program import Runner  # noqa: PLC0415
    except ImportError as problem:
        raise RunnerRefused(f"{NEEDS} ({problem})") from None
    from coordinator.runner.context import RunnerContext  # noqa: PLC0415
    from coordinator.runner.directories import AllowedDirectories  # noqa: PLC0415
    from coordinator.runner.outbox import OutboxCapacity  # noqa: PLC0415
    from coordinator.runner.server import SignalboxServer  # noqa: PLC0415
    from coordinator.runner.session_records import SessionRecordStore  # noqa: PLC0415

    guarded_processes.disable_process_dumps()
    guard = guarded_processes.ProcessGuard()

    async def work_until_stopped() -> str:
        around = RunnerContext(
            options=options,
            server=SignalboxServer(options.url, options.key),
            guard=guard,
            directories=AllowedDirectories(options.directories, options.private),
            memory=SessionRecordStore(options.state),
            capacity=OutboxCapacity(),
            environ=dict(os.environ),
            agents=startable_agents,
            missing=missing,
        )
        await probing.probe_and_keep_answering_agents(around)
        print_runner_summary(options, around.agents, around.missing)
        if only_list:
            return ""
        if not around.agents:
            raise RunnerRefused(
                "This machine has no agent that a runner can start. Install one of those above."
            )
        runner = Runner(around)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, runner.request_runner_stop)
        await runner.work_until_stop()
        return runner.problem

    try:
        ended = asyncio.run(work_until_stopped())
    finally:
        with contextlib.suppress(OSError):
            guard.close_process_guard()
    if ended:
        sys.stderr.write(f"{ended}\n")
    return 1 if ended else 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
