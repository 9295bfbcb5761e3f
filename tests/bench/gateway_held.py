"""What calls that wait for a person cost: the memory of all workers before and while they wait."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from typing import Any

from tests.bench import machine
from tests.bench.mcp_callers import TEXT, Way
from tests.bench.wire import Target
from tests.served import Served

WARM = 50  # calls that are held and let go first, so that what is made once is not counted
PER_AGENT = 50  # one agent may have a hundred that wait
WITHIN = 120.0  # seconds
SETTLES = 3.0  # seconds until what was put off is done


def measured(box: Served, count: int) -> dict[str, Any]:
    """Hold so many calls, each of a client of its own; return the megabytes that all workers grew by."""
    from tests.gateway.agents import rule

    rule(box, "mcp__example__echo", "ask")
    ways = [Way("held", Target(box.url, key), "/mcp/example") for key in agents(box, count // PER_AGENT + 1)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 200)), hard))
    with contextlib.ExitStack() as stack:
        hold(stack, box, ways[:1], WARM)
    time.sleep(SETTLES)
    assert box.process is not None
    pids = machine.tree(box.process.pid)
    before = machine.memory_kb(pids), machine.own_memory_kb(pids)
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        hold(stack, box, ways[1:], count)
        took = time.monotonic() - began
        time.sleep(SETTLES)
        grown = machine.memory_kb(pids) - before[0], machine.own_memory_kb(pids) - before[1]
        spent = machine.cpu_share(pids, 10.0)
    time.sleep(SETTLES)
    left = machine.memory_kb(pids) - before[0]
    return {
        "held": count,
        "grown_pss_mb": grown[0] / 1024,
        "grown_uss_mb": grown[1] / 1024,
        "left_mb": left / 1024,
        "core_percent": spent,
        "asked_per_second": count / took,
        "before_mb": before[0] / 1024,
    }


def agents(box: Served, count: int) -> list[str]:
    """Register so many agents; return a key of each."""
    from coordinator.actions.people.keys import hash_api_key
    from tests.gateway.agents import LONG_AGO

    keys = [f"sbx_held-{number}" for number in range(count)]
    for number, key in enumerate(keys):
        box.sql(
            "INSERT INTO api_keys (name, prefix, key_hash, scopes, created_at, agent_id) VALUES (?, ?, ?, ?, ?, ?)",
            (key, "sbx_", hash_api_key(key), '["agent"]', LONG_AGO, f"agent.held-{number}"),
        )
    return keys


def hold(stack: contextlib.ExitStack, box: Served, ways: list[Way], count: int) -> None:
    """Make calls that wait, each on a connection of its own, until all of them stand before a person."""
    wanted = waiting(box) + count  # those that were let go still stand there: their agent may call again
    for number in range(count):
        way = ways[number % len(ways)]
        sock = stack.enter_context(way.target.connect())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        token = {"_meta": {"progressToken": number}}
        sock.sendall(way.call(way.session(), {"text": f"{TEXT} {number}"}, **token))
    deadline = time.monotonic() + WITHIN
    while (found := waiting(box)) < wanted:
        assert time.monotonic() < deadline, f"{found} calls stand before a person, not {wanted}"
        time.sleep(0.1)


def waiting(box: Served) -> int:
    """Return how many requests wait for a person."""
    ((found,),) = box.sql("SELECT count(*) FROM permission_requests WHERE status = 'pending'")
    return int(found)
