"""A run's order, read from what the server sends to the runner and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coordinator.runner.errors import RunnerRefused

RESUME = "resume_session"


@dataclass(frozen=True, slots=True)
class RunnerOrder:
    """A run. Texts that are not there are empty; `config` is by option id, `agent` and what follows `fork_of` as known.

    `next_number` is the one of the session's next update, 0 where the server did not say.
    """

    run_id: str
    session_id: str
    prompt: str
    is_resume: bool = False
    images: tuple[dict[str, str], ...] = ()
    agent: str = ""
    mode: str = ""
    model: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    wants_worktree: bool = False
    fork_of: str = ""
    agent_session_id: str = ""
    worktree: str = ""
    next_number: int = 0
    directory: str = ""
    instructions: str = ""
    mcp_servers: dict[str, Any] = field(default_factory=dict)

    def prompt_content_blocks(self, *, with_instructions: bool) -> list[dict[str, Any]]:
        """Return the prompt as the protocol's content blocks."""
        texts = [self.instructions] if with_instructions and self.instructions else []
        blocks: list[dict[str, Any]] = [
            {"type": "text", "text": text} for text in (*texts, self.prompt) if text
        ]
        return blocks + [{"type": "image", **image} for image in self.images]


def parse_run_order(run: dict[str, Any]) -> RunnerOrder:
    """Return what a run orders.

    Raises RunnerRefused where there is nothing to do, and where the blueprint could not be resolved: the agent would
    begin without its instructions.
    """
    if problem := text_or_empty(run, "blueprint_error"):
        raise RunnerRefused(f"The run's blueprint cannot be resolved: {problem}")
    parameters = dict_or_empty(run.get("parameters"))
    blueprint = dict_or_empty(run.get("resolved_agent_blueprint"))
    driven = dict_or_empty(run.get("driven"))
    following = driven.get("next")
    prompt = text_or_empty(parameters, "prompt") or text_or_empty(run, "prompt")
    images = select_valid_prompt_images(parameters.get("images"))
    if not prompt and not images:
        raise RunnerRefused("The run has no prompt.")
    return RunnerOrder(
        run_id=str(run["run_id"]),
        session_id=str(run["session_id"]),
        prompt=prompt,
        is_resume=run.get("type") == RESUME,
        images=images,
        agent=text_or_empty(parameters, "agent") or text_or_empty(driven, "agent"),
        mode=text_or_empty(parameters, "mode"),
        model=text_or_empty(parameters, "model"),
        config=dict_or_empty(parameters.get("config")),
        wants_worktree=parameters.get("worktree") is True,
        fork_of=text_or_empty(parameters, "fork_of"),
        agent_session_id=text_or_empty(parameters, "agent_session_id")
        or text_or_empty(driven, "agent_session_id"),
        worktree=text_or_empty(driven, "worktree"),
        next_number=following if isinstance(following, int) else 0,
        directory=text_or_empty(run, "project_dir"),
        instructions=text_or_empty(blueprint, "system_prompt"),
        mcp_servers=dict_or_empty(blueprint.get("mcp_servers")),
    )


def build_mcp_server_entries(order: RunnerOrder, capabilities: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the blueprint's MCP servers in the protocol's form; those that the agent cannot reach are left out."""
    kinds = dict_or_empty(capabilities.get("mcpCapabilities"))
    server_entries: list[dict[str, Any]] = []
    for name, server in order.mcp_servers.items():
        if not isinstance(server, dict):
            continue
        kind = server.get("type") or ("http" if "url" in server else "stdio")
        if kind in {"http", "sse"} and kinds.get(kind) and isinstance(server.get("url"), str):
            headers = format_header_pairs(server.get("headers"))
            server_entries.append({"type": kind, "name": name, "url": server["url"], "headers": headers})
        elif kind == "stdio" and isinstance(server.get("command"), str):
            arguments = [str(argument) for argument in server.get("args") or []]
            env = format_header_pairs(server.get("env"))
            server_entries.append({"name": name, "command": server["command"], "args": arguments, "env": env})
    return server_entries


def select_valid_prompt_images(reported: object) -> tuple[dict[str, str], ...]:
    return tuple(
        {"mimeType": image_entry["mimeType"], "data": image_entry["data"]}
        for image_entry in (reported if isinstance(reported, list) else ())
        if isinstance(image_entry, dict)
        and isinstance(image_entry.get("mimeType"), str)
        and isinstance(image_entry.get("data"), str)
    )


def format_header_pairs(reported: object) -> list[dict[str, str]]:
    return [{"name": str(name), "value": str(value)} for name, value in dict_or_empty(reported).items()]


def dict_or_empty(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def text_or_empty(table: dict[str, Any], name: str) -> str:
    value = table.get(name)
    return value if isinstance(value, str) else ""
