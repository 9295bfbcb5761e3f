"""The kernel's state of a connection, known before the event loop has it."""

from __future__ import annotations

import asyncio
import select


def has_unread_data(connection: asyncio.BaseTransport | asyncio.StreamWriter) -> bool:
    """Say whether data, or the connection's end, has come that the event loop has not read yet."""
    arrived = select.poll()
    arrived.register(connection.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(arrived.poll(0))
