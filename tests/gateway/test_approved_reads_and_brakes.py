"""A brake that is put on between the approval of a read and the read made again."""

from __future__ import annotations

import pytest

from coordinator.mcp.protocol.messages import BRAKED
from tests.gateway.obliging_server import Obliging
from tests.gateway.test_braked_reads import put_on
from tests.gateway.test_held_calls import decide, pending
from tests.gateway.test_held_reads import READ, box, leave_before_the_verdict, server  # noqa: F401 - fixtures
from tests.gateway.test_methods import begun
from tests.patience import until
from tests.served import Served


@pytest.mark.served
def test_a_brake_does_not_use_up_the_approval_of_a_read(box: Served, server: Obliging) -> None:  # noqa: F811
    wire = begun(box)
    leave_before_the_verdict(wire)
    decide(box, pending(box)[0])
    put_on(box)
    assert wire.response(wire.send("resources/read", READ))["error"]["code"] == BRAKED
    assert not server.heard("resources/read")
    box.sql("DELETE FROM brakes")
    until(lambda: box.sql("SELECT used_at FROM permission_context") == [(None,)], "nothing was sent")
    assert "SECRET" in str(wire.ask("resources/read", READ))
