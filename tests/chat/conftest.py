"""One server for the tests of a module that talk to the served program."""

from __future__ import annotations

import pytest

from tests.served import Served, postgres_url


@pytest.fixture
def served(one_server: Served) -> Served:
    """The module's server, with all agents switched on and no message in any thread."""
    one_server.emptied("chat_attachments", "chat_messages", "read_marks")
    one_server.sql(f"UPDATE agents SET enabled = {'true' if postgres_url() else '1'}")
    return one_server
