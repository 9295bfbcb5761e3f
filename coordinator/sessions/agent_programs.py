"""The agent programs whose hooks are understood.

`.docs/develop/howto.md` ("Add an agent dialect") lists the files that a new one needs. The endpoint, its guard, the
gateway, forms and labels of pages follow from AGENT_TITLES and from the module's `DIALECT`.
"""

from __future__ import annotations

# The agents whose hooks are understood, each by its name (in addresses, and as the profile of its sessions and the
# source of its events) and as people call it. Each name is also that of a module in `dialects`.
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

# Those whose hooks report every call that has run, whatever came of it (seen with Claude Code 2.1.197: a headless
# run asks nobody, refuses by itself what its rules do not allow, and no hook reports that).
REPORTS_ALL_RESULTS = frozenset({"claude-code"})
