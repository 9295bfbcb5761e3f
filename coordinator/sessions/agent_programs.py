"""The agent programs whose hooks are understood.

A new one is a line here and:

- `coordinator/dialects/NAME.py`: how its hooks are read, which events they make, how a decision looks in its JSON.
- `coordinator/client/connecting/programs.py`: how `signalbox connect` finds it and what its settings must hold.
- `coordinator/client/hook_agents.py`: how it is denied a call where the server is away, if its hooks are commands.
- `dashboard/connections/what_works.py`: what works with it, and the tests that show it. Prints the documents' tables.
- `coordinator/operations/doctor/shared_user.py`: by what it is known that it runs as this user.

Where it has them: `coordinator/dialects/NAME_transcripts.py` reads its own files, `dashboard/looks/` draws its tools,
and `coordinator/runner/startable.py` starts it. The rest goes by AGENT_TITLES and by the module's `DIALECT`: the door
and the guard, the gateway, the forms and the words of pages. Tests compare these places with each other.
"""

from __future__ import annotations

# The agents whose hooks are understood, each by its name (in addresses, and as the profile of its sessions and the
# source of its events) and as people call it. A name stands for the module of that name in `dialects`.
AGENT_TITLES = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "opencode": "OpenCode",
    "copilot": "GitHub Copilot CLI",
    "qwen-code": "Qwen Code",
    "kilo": "Kilo",
    "cursor": "Cursor",
    "goose": "Goose",
}

# How an agent calls itself to MCP servers, at least in the beginning, where that is not its name.
MCP_CLIENTS = {"gemini": "gemini-cli", "qwen-code": "qwen-cli"}

# Those whose hooks tell of every call that has run, whatever came of it (seen with Claude Code 2.1.197: a headless
# run asks nobody, refuses by itself what its rules do not allow, and no hook tells of that).
TELL_ALL_RESULTS = frozenset({"claude-code"})
