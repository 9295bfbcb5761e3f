"""How the gateway reaches a server: an admin says it on the server's page, and nothing is started before."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.mcp import mcp_credentials, mcp_processes, mcp_servers, mcp_upstreams
from coordinator.actions.mcp.mcp_processes import ProcessReport
from coordinator.actions.mcp.mcp_upstreams import UpstreamConfig
from coordinator.engine import without_password
from coordinator.errors import Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, key_actor_by_name
from coordinator.mcp.gateway import statistics as figures
from coordinator.mcp.hosting import stdio_configuration
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.servers import commands
from coordinator.models import (
    AuditLog,
    Event,
    GatewayFigures,
    McpCredential,
    McpProcess,
    McpServer,
    McpUpstream,
    Session,
)
from coordinator.operations.doctor import upkeep
from dashboard.mcp.views import servers as mcp_servers_view
from tests.access.cases import add_server, add_tool
from tests.people import signed_in
from tests.search.indexing import index_new

pytestmark = pytest.mark.django_db
NOW = timezone.now()
ALICE = Actor("user", "alice")
STDIO = UpstreamConfig("stdio")


@pytest.fixture(autouse=True)
def _world(settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR = tmp_path
    add_server("s")


def switch_on(wanted: UpstreamConfig = STDIO) -> None:
    """Say how the server is reached, as somebody does who sees its command."""
    seen = commands.hash_server_command(McpServer.objects.get(pk="s"))
    mcp_upstreams.save_upstream_config("s", wanted, actor=ALICE, now=NOW, seen_version=seen)


def test_a_server_is_started_once_an_admin_said_so() -> None:
    with pytest.raises(stdio_configuration.ServerNotOffered, match="no admin has switched that on"):
        stdio_configuration.load_stdio_configuration("s")
    switch_on()
    found = stdio_configuration.load_stdio_configuration("s")
    assert (found.command, found.shared, found.environment) == (("python3",), True, {})
    assert AuditLog.objects.get(event_type="MCP_UPSTREAM_SET").metadata["before"] is None


@pytest.mark.parametrize(
    "change",
    [
        lambda: McpServer.objects.update(command="node"),
        lambda: McpServer.objects.update(args=["-c", "import os"]),
        lambda: McpCredential.objects.create(
            server_id="s", kind="env", name="NODE_OPTIONS", value="env:HOME", set_by="x", set_at=NOW
        ),
    ],
)
def test_a_command_that_another_program_wrote_is_not_started_before_an_admin_accepts_it(change: Any) -> None:
    switch_on()
    change()
    with pytest.raises(stdio_configuration.ServerNotOffered, match="accept it"):
        stdio_configuration.load_stdio_configuration("s")
    mcp_servers.update_mcp_server("s", {"description": "An edit of something else."}, actor=ALICE, now=NOW)
    with pytest.raises(stdio_configuration.ServerNotOffered, match="accept it"):
        stdio_configuration.load_stdio_configuration("s")
    assert [
        one.level for one in upkeep.iterate_upkeep_checks(NOW, served=False) if one.name == "commands"
    ] == ["warn"]
    admin = signed_in("admin")
    page = admin.get("/ui/mcp/servers/s/").text
    assert "This server is not started" in page
    seen = page.partition('name="command" value="')[2].partition('"')[0]
    assert signed_in("approver").post("/ui/mcp/command/s/", {"command": seen}).status_code == 403
    admin.post("/ui/mcp/command/s/", {"command": "another"})
    with pytest.raises(stdio_configuration.ServerNotOffered, match="accept it"):
        stdio_configuration.load_stdio_configuration("s")
    assert (
        "This server is not started"
        not in admin.post("/ui/mcp/command/s/", {"command": seen}, follow=True).text
    )
    stdio_configuration.load_stdio_configuration("s")
    assert AuditLog.objects.filter(event_type="MCP_COMMAND_ACCEPTED").count() == 1
    assert [
        one.level for one in upkeep.iterate_upkeep_checks(NOW, served=False) if one.name == "commands"
    ] == ["ok"]


def test_a_command_that_changed_while_its_page_was_open_is_not_switched_on() -> None:
    admin = signed_in("admin")
    page = admin.get("/ui/mcp/servers/s/").text
    seen = re.search(r'action="/ui/mcp/upstream/s/".*?name="command"\s+value="([^"]+)"', page, re.DOTALL)
    assert seen is not None
    form = {"transport": "stdio", "sharing": "shared", "call_seconds": "300", "command": seen[1]}
    McpServer.objects.update(args=["-c", "import os"])
    assert "Check it again" in admin.post("/ui/mcp/upstream/s/", form, follow=True).text
    assert not McpUpstream.objects.exists()
    McpServer.objects.update(args=[])
    assert "Saved." in admin.post("/ui/mcp/upstream/s/", form, follow=True).text
    assert stdio_configuration.load_stdio_configuration("s").command == ("python3",)


def test_what_nobody_has_seen_is_not_accepted_by_switching_it_on() -> None:
    mcp_upstreams.save_upstream_config("s", STDIO, actor=ALICE, now=NOW)
    with pytest.raises(stdio_configuration.ServerNotOffered, match="accept it"):
        stdio_configuration.load_stdio_configuration("s")


def test_what_a_person_edits_here_stays_accepted() -> None:
    switch_on()
    mcp_servers.update_mcp_server("s", {"args": ["-m", "server"]}, actor=ALICE, now=NOW)
    mcp_credentials.save_server_credential("s", "env", "TOKEN", "t", actor=ALICE, now=NOW)
    assert stdio_configuration.load_stdio_configuration("s").environment == {"TOKEN": "t"}
    mcp_credentials.remove_server_credential("s", "env", "TOKEN", actor=ALICE, now=NOW)
    assert stdio_configuration.load_stdio_configuration("s").command == ("python3", "-m", "server")
    mcp_servers.update_mcp_server("s", {"args": []}, actor=key_actor_by_name("ci"), now=NOW)
    with pytest.raises(stdio_configuration.ServerNotOffered, match="accept it"):
        stdio_configuration.load_stdio_configuration("s")


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (UpstreamConfig("stdio", enabled=False), "switched off"),
        (UpstreamConfig("http", "https://mcp.example/"), "no admin has switched that on"),
    ],
)
def test_one_that_is_off_or_elsewhere_is_not_started(wanted: UpstreamConfig, why: str) -> None:
    mcp_upstreams.save_upstream_config("s", wanted, actor=ALICE, now=NOW)
    with pytest.raises(stdio_configuration.ServerNotOffered, match=why):
        stdio_configuration.load_stdio_configuration("s")


def test_a_program_that_the_machines_operator_does_not_allow_is_not_started(settings: Any) -> None:
    switch_on()
    settings.DISCOVERY_COMMANDS = []
    with pytest.raises(stdio_configuration.ServerNotOffered, match="may not be started"):
        stdio_configuration.load_stdio_configuration("s")
    with pytest.raises(UnprocessableRequest, match="may not be started"):
        mcp_upstreams.save_upstream_config(
            "s", UpstreamConfig("stdio", sharing="caller"), actor=ALICE, now=NOW
        )


@pytest.mark.parametrize(
    "wanted",
    [
        UpstreamConfig("ftp"),
        UpstreamConfig("stdio", sharing="some"),
        UpstreamConfig("stdio", call_seconds=0),
        UpstreamConfig("http"),
        UpstreamConfig("http", "https://user:pass@mcp.example/"),
        UpstreamConfig("http", "https://mcp.example/\r\nX: y"),
        UpstreamConfig("http", "file:///etc/passwd"),
    ],
)
def test_what_cannot_be_reached_is_refused(wanted: UpstreamConfig) -> None:
    with pytest.raises(UnprocessableRequest):
        mcp_upstreams.save_upstream_config("s", wanted, actor=ALICE, now=NOW)


def test_no_key_says_it_and_an_unknown_server_is_not_found() -> None:
    with pytest.raises(Forbidden):
        mcp_upstreams.save_upstream_config("s", STDIO, actor=key_actor_by_name("ci"), now=NOW)
    with pytest.raises(NotFound):
        mcp_upstreams.save_upstream_config("none", STDIO, actor=ALICE, now=NOW)


def test_a_later_server_of_the_name_is_offered_to_nobody() -> None:
    switch_on()
    mcp_servers.delete_server_with_grants("s", actor=ALICE, now=NOW)
    assert not McpUpstream.objects.exists()


def test_the_page_offers_a_server_and_takes_it_back() -> None:
    admin = signed_in("admin")
    told = {"transport": "stdio", "sharing": "caller", "call_seconds": "60", "url": ""}
    told["command"] = commands.hash_server_command(McpServer.objects.get(pk="s"))
    page = admin.post("/ui/mcp/upstream/s/", told, follow=True).text
    assert "/mcp/s</code>" in page
    assert "one process for each caller" in page
    page = admin.post("/ui/mcp/upstream/s/", {**told, "transport": "off"}, follow=True).text
    assert "cannot reach this server through Signalbox" in page
    assert McpUpstream.objects.get().enabled is False
    assert signed_in("approver").post("/ui/mcp/upstream/s/", told).status_code == 403


def test_the_page_shows_how_the_process_is_and_its_last_words_without_secrets() -> None:
    token = "ghp_" + "a1B2" * 9
    mcp_processes.save_process_report(
        ProcessReport("s", "", "failed", None, f"It ended. It said: {token} <b>", 3, 2), NOW
    )
    page = signed_in("viewer").get("/ui/mcp/servers/s/").text
    assert "It said:" in page
    assert token not in page
    assert "<b>" not in page
    mcp_processes.save_process_report(ProcessReport("s", "", "running", 7, "", 4, 2), NOW)
    assert McpProcess.objects.get().state == "running"
    mcp_processes.reset_process_reports()
    assert not McpProcess.objects.exists()


def test_the_page_shows_what_calls_came_to_and_how_long_they_took() -> None:
    counts = [0] * (len(figures.BOUNDS) + 1)
    counts[4] = 9
    GatewayFigures.objects.create(
        server_id="s", tool_name="read", hour=NOW, outcome="ok", calls=9, upstream=counts, own=counts
    )
    page = signed_in("viewer").get("/ui/mcp/servers/s/").text
    assert "Through the gateway" in page
    assert f"\u2264 {figures.BOUNDS[4]} ms" in page


def test_the_page_shows_errors_and_within_which_time_most_calls_end() -> None:
    quick, slow = [0] * 23, [0] * 23
    quick[4], slow[16] = 94, 6
    for outcome, calls, upstream in (("ok", 94, quick), ("error", 6, slow)):
        GatewayFigures.objects.create(
            server_id="s", tool_name="read", hour=NOW, outcome=outcome, calls=calls,
            upstream=upstream, own=[calls] + [0] * 22,
        )  # fmt: skip
    (row,) = figures.list_server_tool_statistics("s", NOW)
    assert (row.outcomes["error"], row.upstream_p50, row.upstream_p95) == (6, 7, 1_000)
    page = " ".join(signed_in("viewer").get("/ui/mcp/servers/s/").text.split())
    assert "p50 · p95 · p99" in page
    assert re.search(r'data-label="Errors">\s*6\s*</td>', page)


def test_counts_that_cannot_be_read_are_left_out_of_the_page() -> None:
    odd = ["many"] * (len(figures.BOUNDS) + 1)
    GatewayFigures.objects.create(
        server_id="s", tool_name="odd_tool", hour=NOW, outcome="ok", calls=9, upstream=odd, own=odd
    )
    page = signed_in("viewer").get("/ui/mcp/servers/s/").text
    assert "odd_tool" in page
    assert "\u2264" not in page


def turn_isolation(client: Any, isolation: str, confirm: str = "") -> str:
    """Switch the server's isolation as the form does; return the page that follows."""
    form = {"isolation": isolation, "confirm": confirm}
    return str(client.post("/ui/mcp/isolation/s/", form, follow=True).text)


def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing on this machine that isolates programs."""

    def refuse() -> None:
        raise isolation.IsolationUnavailable("Nothing isolates it.")

    monkeypatch.setattr(isolation, "require_isolation_mechanism", refuse)


def test_where_nothing_isolates_a_server_an_admin_can_start_it_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_bubblewrap(monkeypatch)
    switch_on()
    with pytest.raises(isolation.IsolationUnavailable):
        stdio_configuration.load_stdio_configuration("s")
    assert [
        one.level for one in upkeep.iterate_upkeep_checks(NOW, served=False) if one.name == "isolation"
    ] == ["warn"]
    admin = signed_in("admin")
    page = admin.get("/ui/mcp/servers/s/").text
    assert "Nothing isolates it." in page
    assert "could approve the calls" in " ".join(page.split())
    assert "Type the server" in turn_isolation(admin, "off", "another")
    assert (
        signed_in("approver").post("/ui/mcp/isolation/s/", {"isolation": "off", "confirm": "s"}).status_code
        == 403
    )
    for actor in (key_actor_by_name("ci"), Actor("command", "manage.py")):
        with pytest.raises(Forbidden):
            mcp_upstreams.change_server_isolation("s", True, confirmed="s", actor=actor, now=NOW)
    with pytest.raises(isolation.IsolationUnavailable):
        stdio_configuration.load_stdio_configuration("s")
    assert "it has all rights of Signalbox" in turn_isolation(admin, "off", "s")
    assert stdio_configuration.load_stdio_configuration("s").isolation.is_off
    (check,) = [one for one in upkeep.iterate_upkeep_checks(NOW, served=False) if one.name == "isolation"]
    assert (check.level, "s can read the keys" in check.message) == ("warn", True)
    turn_isolation(admin, "on")
    with pytest.raises(isolation.IsolationUnavailable):
        stdio_configuration.load_stdio_configuration("s")
    events = AuditLog.objects.filter(event_type__startswith="MCP_ISOLATION").order_by("pk")
    assert [(row.event_type, row.target_id) for row in events] == [
        ("MCP_ISOLATION_OFF", "s"),
        ("MCP_ISOLATION_ON", "s"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"is_isolation_off": True},
        {"network": "machine"},
        {"folders": ["/srv"]},
        {"writable_folders": ["/srv"]},
    ],
)
def test_an_isolation_that_another_program_changed_counts_only_once_an_admin_accepts_it(change: Any) -> None:
    switch_on()
    McpUpstream.objects.update(**change)
    with pytest.raises(stdio_configuration.ServerNotOffered, match="accept it"):
        stdio_configuration.load_stdio_configuration("s")
    assert mcp_servers_view.stored_isolation_or_default(McpServer.objects.get()) == isolation.Isolation(), (
        "nor does Discover"
    )
    page = " ".join(signed_in("admin").get("/ui/mcp/servers/s/").text.split())
    assert "without isolation" in page if "is_isolation_off" in change else "Network: " in page


def test_an_admin_gives_a_server_a_network_and_folders(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        without_password, "find_address_accepting_no_password", lambda **_: None
    )  # a test's PostgreSQL may be one
    admin = signed_in("admin")
    page = admin.get("/ui/mcp/servers/s/").text
    seen = re.search(r'name="command"\s+value="([^"]+)"', page)
    assert seen is not None
    form = {"transport": "stdio", "sharing": "shared", "call_seconds": "300", "command": seen[1]}
    admin.post("/ui/mcp/upstream/s/", form)
    assert stdio_configuration.load_stdio_configuration("s").isolation == isolation.Isolation()
    more = {"network": "machine", "folders": "/srv\r\n\r\n/opt/data\r\n", "writable_folders": "/srv/out"}
    page = admin.post("/ui/mcp/upstream/s/", form | more, follow=True).text
    assert "/srv\n/opt/data</textarea>" in page
    wanted = isolation.Isolation("machine", ("/srv", "/opt/data"), ("/srv/out",))
    assert stdio_configuration.load_stdio_configuration("s").isolation == wanted, (
        "what an admin changes here stays accepted"
    )
    assert "in its data folder" in admin.post(
        "/ui/mcp/upstream/s/", form | {"folders": str(tmp_path)}, follow=True
    ).text  # fmt: skip
    assert "which network" in admin.post("/ui/mcp/upstream/s/", form | {"network": "all"}, follow=True).text
    assert stdio_configuration.load_stdio_configuration("s").isolation == wanted


def test_pages_show_calls_and_times_by_day_and_the_last_error_in_words() -> None:
    counts = [0] * 23
    counts[4], counts[16] = 97, 3
    for outcome, calls in (("ok", 94), ("error", 6)):
        GatewayFigures.objects.create(
            server_id="s",
            tool_name="read",
            hour=NOW,
            outcome=outcome,
            calls=calls,
            upstream=counts,
            own=counts,
        )
    add_tool("s", "read")
    session = Session.objects.create(
        session_id="one", agent_name="agent.a", status="completed", created_at=NOW
    )
    for error in ("The first.", "No such <b>file</b>."):
        Event.objects.create(
            session=session, event_type="post_tool", timestamp="t", tool_name="mcp__s__read", error=error
        )
    index_new()
    person = signed_in("viewer")
    for path in ("/ui/mcp/servers/s/", "/ui/mcp/tool/?server=s&tool=read"):
        page = " ".join(person.get(path).text.split())
        assert "Errors: 6" in page, path
        assert "p99: \u2264 1 s" in page, path
        assert "No such &lt;b&gt;file&lt;/b&gt;." in page, path
        assert "The first." not in page, path
