"""Credentials of MCP servers: sealed where they are stored, told to nobody, opened where they are needed."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from coordinator.actions.mcp import mcp_credentials
from coordinator.actions.people import keys
from coordinator.errors import Forbidden, UnprocessableRequest
from coordinator.identity.actors import Actor, key_actor_by_name
from coordinator.mcp.servers import credentials
from coordinator.models import AuditLog, Blueprint, McpCredential, Run, Runner, Session
from coordinator.operations.doctor import CheckLevel, upkeep
from coordinator.runs import blueprints, sealed_servers
from coordinator.secrets import keyring, mask_server_secrets
from tests.access.cases import add_server
from tests.people import signed_in
from tests.unbound import accept_unbound_keys

pytestmark = pytest.mark.django_db
NOW = timezone.now()
ALICE = Actor("user", "alice")
SECRET = "t0p-secret-value"
SERVERS = {
    "gh": {"type": "stdio", "command": "npx", "args": ["gh"], "env": {"GITHUB_TOKEN": SECRET}},
    "web": {"type": "http", "url": "https://mcp.example", "headers": {"Authorization": SECRET}},
}


@pytest.fixture(autouse=True)
def _folder(settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR = tmp_path
    add_server("gh")


@pytest.mark.parametrize("argument", ["--token=abcdef", "plain"])
def test_masked_arguments_that_come_back_stay_what_they_are(argument: str) -> None:
    servers = {"gh": {"command": "npx", "args": [argument], "env": {"A": "v"}}}
    stored = sealed_servers.seal_values_keeping_masked_ones(servers, "agent a")
    again = sealed_servers.seal_values_keeping_masked_ones(mask_server_secrets(stored), "agent a", stored)
    assert sealed_servers.unseal_server_values(again, "agent a") == servers


def set_value(name: str = "TOKEN", value: str = SECRET, kind: str = "env") -> McpCredential:
    return mcp_credentials.save_server_credential("gh", kind, name, value, actor=ALICE, now=NOW)


def client(*scopes: str, name: str = "") -> Client:
    accept_unbound_keys()
    _, raw = keys.issue_api_key(name=name or secrets.token_hex(4), scopes=scopes, actor=ALICE, now=NOW)
    return Client(headers={"Authorization": f"Bearer {raw}"})


def in_the_database() -> str:
    """Return every value of the tables that credentials might be in."""
    found = []
    with connection.cursor() as cursor:
        for table in ("mcp_credentials", "mcp_servers", "blueprints", "capabilities", "audit_logs"):
            cursor.execute(f"SELECT * FROM {table}")
            found.append(cursor.fetchall())
    return str(found)


def test_a_credential_is_sealed_and_opens_for_its_server_alone() -> None:
    row = set_value()
    assert credentials.load_server_environment("gh") == {"TOKEN": SECRET}
    assert SECRET not in in_the_database()
    add_server("other")
    McpCredential.objects.create(
        server_id="other", kind="env", name="TOKEN", value=row.value, set_by="x", set_at=NOW
    )
    with pytest.raises(credentials.CredentialUnusable, match="belongs to something else"):
        credentials.load_server_environment("other")


def test_a_header_goes_with_requests_and_one_from_the_environment_is_read_there(monkeypatch: Any) -> None:
    set_value("Authorization", "env:GH_AUTH", "header")
    with pytest.raises(credentials.CredentialUnusable, match="GH_AUTH"):
        credentials.load_credential_header_pairs("gh")
    monkeypatch.setenv("GH_AUTH", "Bearer x")
    assert credentials.load_credential_header_pairs("gh") == [("Authorization", "Bearer x")]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("env", "LD_PRELOAD", "x"),
        ("env", "A B", "x"),
        ("env", "A", "env:SIGNALBOX_SECRET_KEY"),
        ("header", "Host", "x"),
        ("header", "Mcp-Session-Id", "x"),
        ("header", "X", "a\r\nY: b"),
        ("header", "X", ""),
        ("file", "X", "x"),
    ],
)
def test_what_would_steer_the_process_or_the_request_is_refused(kind: str, name: str, value: str) -> None:
    with pytest.raises(UnprocessableRequest):
        set_value(name, value, kind)


def test_no_key_sets_one_and_the_audit_log_tells_of_it_without_the_value() -> None:
    with pytest.raises(Forbidden):
        mcp_credentials.save_server_credential("gh", "env", "A", "b", actor=key_actor_by_name("ci"), now=NOW)
    set_value()
    row = AuditLog.objects.get(event_type="MCP_CREDENTIAL_SET")
    assert (row.target_id, row.metadata) == ("gh env TOKEN", {"source": "sealed", "replaced": False})


def test_a_page_sets_and_removes_one_and_never_shows_it() -> None:
    admin = signed_in("admin")
    told = {"kind": "header", "name": "Authorization", "value": SECRET}
    page = admin.post("/ui/mcp/credentials/set/gh/", told, follow=True)
    assert "Authorization" in page.text
    assert SECRET not in page.text
    admin.post("/ui/mcp/credentials/remove/gh/", {"credential": "header Authorization"})
    assert not McpCredential.objects.exists()


def test_rotating_seals_everything_anew_and_forgets_the_old_key() -> None:
    set_value()
    client("operator").post(
        "/agents",
        {"name": "shop", "description": "d", "mcp_servers": SERVERS},
        content_type="application/json",
    )
    before, old = in_the_database(), keyring.load_newest_key_id()
    call_command("credentials", "rotate-key")
    assert keyring.keyring_path().read_text().count("\n") == 1
    assert old not in keyring.keyring_path().read_text()
    assert in_the_database() != before
    assert credentials.load_server_environment("gh") == {"TOKEN": SECRET}
    assert blueprints.find_unmasked_blueprint_as_json("shop")["mcp_servers"] == SERVERS  # type: ignore[index]


def test_where_the_keys_are_lost_doctor_says_so_and_rotating_keeps_what_is_there() -> None:
    set_value()
    keyring.keyring_path().unlink()
    found = upkeep.check_credentials_can_be_decrypted()
    assert (found.level, "credential_keys" in found.remedy) == (CheckLevel.FAIL, True)
    with pytest.raises(CommandError, match="old keys stay"):
        call_command("credentials", "rotate-key")


class TestBlueprints:
    @pytest.fixture(autouse=True)
    def _blueprint(self) -> None:
        answer = client("operator").post(
            "/agents",
            {"name": "shop", "description": "d", "mcp_servers": SERVERS},
            content_type="application/json",
        )
        assert answer.status_code == 201
        assert SECRET not in answer.text

    def test_its_values_are_sealed_where_it_is_stored(self) -> None:
        assert SECRET not in in_the_database()

    @pytest.mark.parametrize("scope", ["read", "agent", "operator", "runner"])
    @pytest.mark.parametrize("path", ["/agents", "/agents/shop", "/agents/shop?raw=true"])
    def test_no_key_reads_its_environment_and_headers(self, scope: str, path: str) -> None:
        answer = client(scope).get(path)
        assert answer.status_code == 200
        assert SECRET not in answer.text
        assert "sealed:" not in answer.text
        assert "GITHUB_TOKEN" in answer.text

    def test_the_runner_that_has_its_run_in_hand_reads_them_and_another_does_not(self) -> None:
        own, other = client("runner", name="own"), client("runner", name="other")
        session = Session.objects.create(session_id="ses_1", status="running", created_at=NOW)
        Runner.objects.create(
            runner_id="lnch_1", hostname="h", project_dir="/", executor_profile="p", registered_at=NOW,
            last_heartbeat=NOW, registered_by="own",
        )  # fmt: skip
        run = Run.objects.create(
            run_id="run_1", session=session, type="start_session", agent_name="shop", prompt="p",
            status="claimed", runner_id="lnch_1", created_at=NOW,
        )  # fmt: skip
        assert own.get("/agents/shop").json()["mcp_servers"] == SERVERS
        Run.objects.filter(pk=run.pk).update(status="completed")
        assert SECRET not in own.get("/agents/shop").text
        assert SECRET not in other.get("/agents/shop").text

    def test_an_edit_that_sends_the_mask_back_keeps_the_value(self) -> None:
        operator = client("operator")
        told = operator.get("/agents/shop?raw=true").json()["mcp_servers"]
        told["other"] = {"type": "stdio", "command": "c", "env": {"NEW": "n"}}
        answer = operator.patch("/agents/shop", {"mcp_servers": told}, content_type="application/json")
        assert answer.status_code == 200
        whole = blueprints.find_unmasked_blueprint_as_json("shop")
        assert whole is not None
        assert whole["mcp_servers"]["gh"]["env"] == {"GITHUB_TOKEN": SECRET}
        assert whole["mcp_servers"]["other"]["env"] == {"NEW": "n"}

    @pytest.mark.parametrize(
        ("server", "change"),
        [
            ("web", {"url": "https://attacker.example"}),
            ("gh", {"command": "sh"}),
            ("gh", {"args": ["-c", "env"]}),
            ("gh", {"env": {"GITHUB_TOKEN": "***", "HTTPS_PROXY": "http://attacker.example"}}),
            ("gh", {"env": {"GITHUB_TOKEN": "***", "HOST": "${ELSEWHERE}"}}),
        ],
    )
    def test_a_mask_keeps_no_value_for_another_address_command_or_environment(
        self, server: str, change: dict[str, Any]
    ) -> None:
        operator = client("operator")
        told = operator.get("/agents/shop?raw=true").json()["mcp_servers"]
        told[server] |= change
        answer = operator.patch("/agents/shop", {"mcp_servers": told}, content_type="application/json")
        assert answer.status_code == 422
        assert "enter the value again" in answer.text
        whole = blueprints.find_unmasked_blueprint_as_json("shop")
        assert whole is not None
        assert whole["mcp_servers"] == SERVERS

    def test_a_mask_that_stands_for_nothing_is_refused(self) -> None:
        servers = {"x": {"type": "stdio", "command": "c", "env": {"A": "***"}}}
        answer = client("operator").patch(
            "/agents/shop", {"mcp_servers": servers}, content_type="application/json"
        )
        assert answer.status_code == 422
        assert Blueprint.objects.get().mcp_servers.keys() == SERVERS.keys()

    def test_a_poll_hands_the_runner_the_values(self) -> None:
        assert json.dumps(SERVERS["gh"]["env"]) in json.dumps(
            blueprints.find_unmasked_blueprint_as_json("shop")
        )
