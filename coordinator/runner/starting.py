"""Starting an agent's process: its environment, what it may ask of us, and the conversation that begins with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.runner import environment, message_store
from coordinator.runner.client import AgentClient, Answer
from coordinator.runner.context import RunnerContext
from coordinator.runner.conversation import AgentConversation
from coordinator.runner.process import AgentProcess
from coordinator.runner.startable import StartableAgent
from coordinator.runner.terminals import ReportOutput, SessionTerminals


async def start_agent_process_and_terminals(
    around: RunnerContext,
    agent: StartableAgent,
    session_id: str,
    directory: str,
    *,
    wrote: ReportOutput,
    on_message: Callable[[dict[str, Any]], None],
    unknown: Callable[[str], None],
    ask: Answer,
    elicit: Answer,
) -> tuple[SessionTerminals, AgentConversation]:
    """Start a session's agent; return its terminals and the conversation, not opened yet. Raises AgentFailed."""
    env = environment.build_agent_environment(
        agent,
        around.environ,
        passes=around.options.passes,
        key=around.options.key,
        session_id=session_id,
        mark=around.guard.create_process_environment_tag(),
    )
    directories = around.directories.with_additional_allowed_directory(directory)
    terminals = SessionTerminals(around.guard, directories, env, wrote)
    client = AgentClient(
        on_message=on_message,
        unknown=unknown,
        ask=ask,
        elicit=elicit,
        agent_program=lambda: (
            conversation.reported_agent_program_name
        ),  # after `initialize`; a request comes later still
        places=directories,
        directory=directory,
        terminals=terminals,
    )
    process = await AgentProcess.start_agent_process(
        agent,
        around.guard,
        directory=directory,
        env=env,
        handler=client.handle_agent_message,
        wait_for_capacity=around.capacity.wait_for_capacity,
        garbage=unknown,
    )
    conversation = AgentConversation(
        agent, process, directory, store=message_store.agent_database_path_or_empty(agent, env)
    )
    return terminals, conversation
