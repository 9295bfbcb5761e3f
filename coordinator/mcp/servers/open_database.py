"""The check whether a server that Signalbox starts could change Signalbox's data by the network, without a password."""

from __future__ import annotations

from coordinator.engine import without_password
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.isolation.process_isolation import IsolationMechanism, IsolationUnavailable
from coordinator.models.gateway import Network

REMEDY = (
    "Have PostgreSQL ask for a password at that address (scram-sha-256 in pg_hba.conf) and put it into DATABASE_URL, "
    "or choose No network."
)


def probe_reachable_passwordless_database(network: str) -> str | None:
    """Return where a server with this network reaches a database that asks for no password; None where nowhere."""
    if network != Network.MACHINE:
        return None
    try:
        loopback = (
            isolation.require_isolation_mechanism() is not IsolationMechanism.SECOND_USER
        )  # whose unit keeps it from loopback addresses
    except IsolationUnavailable:
        loopback = True
    return without_password.find_address_accepting_no_password(loopback=loopback)
