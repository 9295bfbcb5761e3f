"""The agent programs whose hooks are understood. A new one is a line here and a module in `dialects`."""

from __future__ import annotations

# The agents whose hooks are understood, each by its name (in addresses, and as the profile of its sessions and the
# source of its events) and as people call it. A name stands for the module of that name in `dialects`.
AGENTS = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "opencode": "OpenCode",
    "copilot": "GitHub Copilot CLI",
    "cursor": "Cursor",
    "goose": "Goose",
}

# Those whose hooks tell of every call that has run, whatever came of it (seen with Claude Code 2.1.197: a headless
# run asks nobody, refuses by itself what its rules do not allow, and no hook tells of that).
TELL_ALL_RESULTS = frozenset({"claude-code"})
