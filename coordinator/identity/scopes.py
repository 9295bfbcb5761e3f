"""Scopes: what an API key is for, in people's words, and which scopes each group of endpoints takes.

A key may do what any one of its scopes allows. Rules name a set from here, and so do endpoints where several share it;
an endpoint with one of its own names it at its declaration. The table in .docs/api.md names the same (tests/docs).
"""

from __future__ import annotations

# Each scope that a key can be given, with what it allows as the page that makes keys says it.
WHAT_SCOPES_ALLOW = {
    "runner": "register runners; take, start and stop runs; post events into its sessions",
    "agent": "ask for permission, post events and chat as the agent that the key is bound to",
    "operator": "start, stop and delete sessions; edit blueprints; switch agents",
    "read": "read everything, change nothing",
}
SCOPES = tuple(WHAT_SCOPES_ALLOW)
GATEWAY = "gateway"  # the scope of a driven agent's key, good at the MCP gateway alone; nobody can choose it

# Who sees what belongs to others.
READ_ALL = frozenset({"read", "operator", "runner"})  # every session, though the key is bound to an agent
OVERSEERS = frozenset({"read", "operator"})  # every permission request, and the server's metrics
READ_BLUEPRINTS_WHOLE = frozenset({"operator", "runner"})  # their texts unmasked: who runs or edits them

# Who acts beyond its own.
WRITE_ALL = frozenset({"operator"})  # every session and runner; withdraws any permission request
SPEAK_AS_AGENTS = frozenset(
    {"agent"}
)  # as the one it is bound to, else as any; reads unmasked what was said to it
TAKE_RUNS = frozenset({"runner"})  # writes into the sessions whose runs it took; is given their blueprints

# Who calls which endpoints.
READERS = ("agent", "operator", "read", "runner")  # sessions, agents, grants and answers, at least its own
REPORTERS = ("agent", "operator", "runner")  # post events and telemetry, ask for permission
SESSION_KEEPERS = ("operator", "runner")  # make, start, stop and delete sessions and runs
RUNNERS = ("runner",)
AGENT_SCOPES = ("agent",)  # hooks, and calls of MCP servers that run beside an agent
GATEWAY_SCOPES = (*AGENT_SCOPES, GATEWAY)
CHAT_READERS = ("agent", "operator", "read")
CHAT_SPEAKERS = ("agent", "operator")
