"""MCP's own referee says the same of a conforming server whether it asks it directly or through the gateway."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.agents import programs
from tests.gateway.agents import KEY, furnish
from tests.gateway.conforming import server
from tests.gateway.conftest import TABLES
from tests.gateway.forwarder import forwarding
from tests.served import Served

pytestmark = [
    pytest.mark.served,
    pytest.mark.real_agent,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

WITHIN = 150.0  # seconds
SUITES = {
    "conformance-2025": ("--suite", "all"),
    "conformance-2026": ("--requirements", "2026-07-28"),
}
NAME = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT")

Checks = dict[str, list[tuple[str, str]]]


@pytest.fixture
def addresses(served: Served) -> Iterator[dict[str, str]]:
    """Where the same server is asked: directly, and through the gateway."""
    programs.needed(*SUITES)
    served.emptied(*TABLES)
    with server.running() as url, forwarding(f"{served.url}/mcp/conforming", KEY) as through:
        furnish(served, url, server="conforming")
        yield {"directly": url, "through": through}


def judged(suite: str, url: str, place: Path) -> Checks:
    """Have the referee judge a server; return each scenario's checks with what came of them."""
    words = [*programs.command(suite), "server", "--url", url, *SUITES[suite], "-o", str(place)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=WITHIN)
    found: Checks = {}
    for file in place.glob("server-*/checks.json"):
        named = NAME.match(file.parent.name)
        assert named, file
        found[named[1]] = [(one["id"], one["status"]) for one in json.loads(file.read_text())]
    assert len(found) > 30, done.stdout[-2000:] + done.stderr[-2000:]
    return found


@pytest.mark.parametrize("suite", SUITES)
def test_the_referee_says_the_same_of_a_server_and_of_the_gateway_before_it(
    addresses: dict[str, str], suite: str, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(2) as both:
        results = both.map(lambda way: judged(suite, addresses[way], tmp_path / way), addresses)
        directly, through = results
    assert [one for one, checks in directly.items() if not _passed(checks)] == []
    other = [one for one in sorted(directly | through) if directly.get(one) != through.get(one)]
    assert not other, "\n".join(
        f"{one}\n  directly: {directly.get(one)}\n  through: {through.get(one)}" for one in other
    )


def _passed(checks: list[tuple[str, str]]) -> bool:
    return all(status != "FAILURE" for _, status in checks)
