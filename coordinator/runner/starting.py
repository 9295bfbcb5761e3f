"""Starting an agent's process: its environment, what it may ask of us, and the conversation that begins with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.runner import environment, message_store
from coordinator.runner.client import Answer, Client
from coordinator.runner.context import RunnerContext
from coordinator.runner.conversation import Conversation
from coordinator.runner.process import AgentProcess
from coordinator.runner.startable import Agent
from coordinator.runner.terminals import Tell, Terminals


async def start(
    around: RunnerContext,
    agent: Agent,
    session_id: str,
    directory: str,
    *,
    wrote: Tell,
    told: Callable[[dict[str, Any]], None],
    unknown: Callable[[str], None],
    ask: Answer,
) -> tuple[Terminals, Conversation]:
    """Start a session's agent; return its terminals and the conversation, not opened yet. Raises AgentFailed."""
    env = environment.for_agent(
        agent,
        around.environ,
        passes=around.options.passes,
        key=around.options.key,
        session_id=session_id,
        mark=around.guard.new_mark(),
    )
    places = around.places.also(directory)
    terminals = Terminals(around.guard, places, env, wrote)
    client = Client(
        told=told,
        unknown=unknown,
        ask=ask,
        agent_program=lambda: conversation.program,  # after `initialize`; a request comes later still
        places=places,
        directory=directory,
        terminals=terminals,
    )
    process = await AgentProcess.started(
        agent,
        around.guard,
        directory=directory,
        env=env,
        handler=client.handle,
        room=around.room.wait,
        garbage=unknown,
    )
    conversation = Conversation(agent, process, directory, store=message_store.store_path(agent, env))
    return terminals, conversation
