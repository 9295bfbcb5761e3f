"""No address that an agent is given is a name under `.localhost`: browsers find these, Node and getent do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from coordinator.actions.mcp import gateway_calls
from coordinator.client import settings
from coordinator.client.connecting import http_requests
from coordinator.client.connecting.connectable_agents import CONNECTABLE_AGENTS
from coordinator.client.connection import replace_localhost_subdomain
from coordinator.models import McpServer, PermissionRequest
from coordinator.notifications import messages
from coordinator.runner import options
from dashboard.mcp import gateway_parts
from tests.connecting.homes import connect, disconnected, machine
from tests.people import signed_in
from tests.served import ROOT

__all__ = ["machine"]
OWN = "signalbox-0123456789.localhost"
NAMED = re.compile(r"\.localhost\b")
# Where a text of the server goes to agents: none of these packages may name people's own address.
TO_AGENTS = ("actions", "dialects", "edge", "gateway", "mcp", "policy", "hosting", "client", "runner")
TO_PEOPLE = {"edge/monitoring/metrics.py"}  # asks only whether it is https


@pytest.mark.parametrize(
    ("given", "address"),
    [
        (f"http://{OWN}:8765", "http://127.0.0.1:8765"),
        ("http://Signalbox.LOCALHOST.:1/a", "http://127.0.0.1:1/a"),
        ("https://x.localhost", "https://127.0.0.1"),
        ("http://localhost:8765", "http://localhost:8765"),
        ("https://signalbox.example", "https://signalbox.example"),
        ("http://x.localhost.example:1", "http://x.localhost.example:1"),
        ("http://[::1]:8765", "http://[::1]:8765"),
    ],
)
def test_a_name_that_only_browsers_find_becomes_the_address(given: str, address: str, tmp_path: Path) -> None:
    assert replace_localhost_subdomain(given) == address
    assert http_requests.normalize_server_url(given) == address
    flags = options.build_runner_parser().parse_args(
        ["--url", given, "--key", "sbx_x", "--directory", str(tmp_path)]
    )
    assert (
        options.load_runner_options(flags, {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}).url
        == address
    )


def test_nothing_that_connect_writes_names_it(machine: Path) -> None:
    key = machine / "key-of-the-test"
    key.write_text("CODE-OF-ONE\n")
    words = ["--url", f"http://{OWN}:9", "--yes", "--key-file", str(key)]
    assert connect.run([*CONNECTABLE_AGENTS, *words]) == 0
    files = [path for path in machine.rglob("*") if path.is_file()]
    assert any("127.0.0.1:9" in path.read_text() for path in files)
    assert [path for path in files if NAMED.search(path.read_text())] == []
    assert disconnected() == 0


def test_a_machine_that_was_connected_by_the_name_is_moved_to_the_address(machine: Path) -> None:
    (machine / ".codex").mkdir()
    settings.save_client_settings(
        settings.ClientSettings(f"http://{OWN}:9", "sbx_a-key-for-tests", {"codex": {"program": ["x"]}})
    )
    assert connect.run(["codex", "--yes"]) == 0  # with the key that is there
    assert settings.resolve_client_settings().url == "http://127.0.0.1:9"
    assert connect.run(["--check"]) == 0


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["", *(f"{name}/" for name in CONNECTABLE_AGENTS)])
def test_no_page_says_to_connect_by_it(path: str) -> None:
    page = signed_in("admin").get(f"/ui/connections/{path}", headers={"host": django_settings.OWN_HOST}).text
    assert "127.0.0.1" in page
    assert NAMED.search(page) is None


@pytest.mark.django_db
def test_the_gateways_address_on_a_servers_page_is_one_for_agents() -> None:
    server = McpServer.objects.create(name="notes", created_at=timezone.now())
    address = gateway_parts.build_server_gateway_context(server, timezone.now())["gateway"]["address"]
    assert address == f"{django_settings.AGENT_URL}/mcp/notes"


def test_links_in_answers_to_agents_are_ones_that_they_can_open() -> None:
    request = PermissionRequest(request_id="of-one")
    assert NAMED.search(messages.approval_page_url(request)), "people keep their own"
    for link in (gateway_calls.approval_url(request), messages.budgets_page_url(to_agent=True)):
        assert link.startswith(f"{django_settings.AGENT_URL}/ui/")
    assert NAMED.search(django_settings.AGENT_URL) is None


def test_no_package_that_speaks_to_agents_names_peoples_address() -> None:
    found = {
        str(path.relative_to(ROOT / "coordinator"))
        for package in TO_AGENTS
        for path in Path(ROOT, "coordinator", package).rglob("*.py")
        if "PUBLIC_URL" in path.read_text()
    }
    assert found == TO_PEOPLE
