"""Limits on how long an MCP client waits for a response."""

from __future__ import annotations

from coordinator.actions.approvals.pending_calls import pending_call_lifetime
from coordinator.edge.gateway.exchange import Exchange

# Seconds after which a client that asked for no progress would give up: many do after 60.
WITHOUT_PROGRESS = 50.0
ROUND = 50.0  # seconds for which one try of a stateless client is held
WITHOUT_EVENTS = 20.0  # seconds for a client that takes no events
BREAKS_OFF_AFTER = {"codex": 10.0}  # seconds, by program: it waits no longer, whatever is sent to it


def max_client_wait_seconds(exchange: Exchange) -> float:
    """Return for how many seconds this client can be made to wait on its line."""
    if not exchange.accepts_event_stream:
        return WITHOUT_EVENTS
    if exchange.message.is_stateless and can_client_open_urls(exchange):
        return ROUND
    if exchange.program in BREAKS_OFF_AFTER:
        return BREAKS_OFF_AFTER[exchange.program]
    return (
        WITHOUT_PROGRESS
        if exchange.message.progress_token is None
        else pending_call_lifetime().total_seconds()
    )


def can_client_open_urls(exchange: Exchange) -> bool:
    elicitation = exchange.message.stateless_client_capabilities.get("elicitation")
    return isinstance(elicitation, dict) and isinstance(elicitation.get("url"), dict)
