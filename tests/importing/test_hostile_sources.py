"""A database from elsewhere decides nothing here, opens no file of ours, and fails in one line."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.importing import import_database
from coordinator.actions.importing.outcomes import TableOutcome
from coordinator.actions.plugins import plugin_permissions
from coordinator.importing.source_database import SourceDatabase
from coordinator.models import Agent, ChatAttachment, Grant, McpServer, PermissionRequest, PluginSetting
from coordinator.policy.grants import access
from tests.importing.sources import AGENT, EVENT, MESSAGE, SESSION, add, database

pytestmark = pytest.mark.django_db

ATTACHMENT = {
    "id": "a",
    "message_id": "m1",
    "filename": "f.txt",
    "mime_type": "text/plain",
    "size_bytes": 10,
    "storage_type": "disk",
    "disk_path": "attachments/secret_key",
    "created_at": 1771848000000,
}


@pytest.fixture
def path(settings, tmp_path) -> Path:
    settings.DATA_DIR = tmp_path / "ours"
    return tmp_path / "theirs" / "data" / "cloto.db"


def brought(path: Path, *, write: bool = True, with_policy: bool = False) -> dict[str, TableOutcome]:
    source = SourceDatabase(path)
    try:
        done = import_database(source, now=timezone.now(), write=write, with_policy=with_policy)
    finally:
        source.delete_database_copy()
    return {one.table: one for one in done.outcomes}


def with_policy_in_it(path: Path, status: str = "approved") -> None:
    """A source with a grant, a server open to all, and an approval that never ends."""
    file, now = database(path), timezone.now().isoformat()
    add(file, "agents", AGENT)
    server = {"name": "evil", "command": "sh", "created_at": 1771848000, "default_policy": "opt-out"}
    add(file, "mcp_servers", server, {**server, "name": "shut", "default_policy": "opt-in"})
    grant = {"entry_type": "server_grant", "agent_id": "agent.watch", "server_id": "shut", "granted_at": now}
    add(file, "mcp_access_control", {**grant, "permission": "allow"})
    request = {"request_id": "r1", "created_at": now, "plugin_id": "p", "permission_type": "FileRead"}
    add(
        file,
        "permission_requests",
        {
            **request,
            "justification": "j",
            "target_resource": "/",
            "status": status,
            "approved_by": "anna",
        },
    )


def allowed(server: str) -> bool:
    return access.resolve_tool_access("agent.watch", server, "any", timezone.now()).is_allowed


def is_approved() -> bool:
    return approvals.is_call_approved("p", "FileRead", "/")


each_approval = pytest.mark.parametrize("status", ["approved", "auto-approved"])


@each_approval
def test_nothing_that_comes_in_decides_without_a_persons_word(path, status):
    with_policy_in_it(path, status)
    outcomes = brought(path)
    assert (allowed("evil"), allowed("shut"), is_approved()) == (False, False, False)
    assert not Grant.objects.exists()
    assert McpServer.objects.get(pk="evil").default_policy == "opt-in"
    assert PermissionRequest.objects.get().status == status
    told = [note for one in outcomes.values() for note in one.notes]
    assert sum("--with-policy" in note for note in told) == 3
    assert "allow every tool of shut" in outcomes["mcp_access_control"].left_out[0]


@each_approval
def test_with_a_persons_word_it_decides_as_it_did_there(path, status):
    with_policy_in_it(path, status)
    brought(path, with_policy=True)
    assert (allowed("evil"), allowed("shut"), is_approved()) == (True, True, True)


@pytest.mark.parametrize("with_policy", [False, True])
@pytest.mark.parametrize("plugin", ["tool.theirs", "mind.deepseek"])
def test_a_plugin_that_is_new_here_may_do_nothing_without_a_persons_word(path, plugin, with_policy):
    PluginSetting.objects.filter(pk="mind.deepseek").delete()  # somebody's own wish
    wanted = ["AdminAccess", "ProcessExecution"]
    file = database(path)
    file.execute("DELETE FROM plugin_settings")
    add(file, "plugin_settings", {"plugin_id": plugin, "allowed_permissions": json.dumps(wanted)})
    add(file, "plugin_settings", {"plugin_id": "tool.modest", "allowed_permissions": "[]"})
    dry = brought(path, write=False, with_policy=with_policy)["plugin_settings"]
    done = brought(path, with_policy=with_policy)["plugin_settings"]
    assert PluginSetting.objects.get(pk=plugin).allowed_permissions == (wanted if with_policy else [])
    assert plugin_permissions.has_plugin_permission(plugin, "AdminAccess") is with_policy
    assert (
        any(note.startswith("1 plugins") and "--with-policy" in note for note in done.notes)
        is not with_policy
    )
    assert (dry.notes, done.added) == (done.notes, 2)


def test_a_plugin_that_came_in_with_no_permissions_is_known_again(path):
    file = database(path)
    add(file, "plugin_settings", {"plugin_id": "tool.theirs", "allowed_permissions": '["FileRead"]'})
    brought(path)
    again = brought(path)["plugin_settings"]
    assert (again.present, again.conflicts) == (again.rows, [])


def test_a_dry_run_tells_what_would_not_decide(path):
    with_policy_in_it(path)
    dry = brought(path, write=False)
    assert {name: one.notes for name, one in dry.items()} == {
        name: one.notes for name, one in brought(path).items()
    }


def test_what_was_closed_on_its_way_in_is_known_again(path):
    with_policy_in_it(path)
    brought(path)
    again = brought(path)
    assert (again["mcp_servers"].present, again["mcp_servers"].conflicts) == (2, [])


@pytest.mark.parametrize("which", ["beside the database", "in data"])
def test_a_linked_folder_of_attachments_leads_nowhere(path, tmp_path, which):
    secrets = tmp_path / "elsewhere" / "attachments"
    secrets.mkdir(parents=True)
    (secrets / "secret_key").write_text("the secret")
    path = path.parents[1] / "db" / "cloto.db"
    file = database(path)
    if which == "in data":
        (path.parents[1] / "data").symlink_to(secrets.parent)
    else:
        (path.parent / "attachments").symlink_to(secrets)
    add(file, "agents", AGENT)
    add(file, "chat_messages", MESSAGE)
    add(file, "chat_attachments", {**ATTACHMENT, "disk_path": "data/attachments/secret_key"})
    add(file, "chat_attachments", {**ATTACHMENT, "id": "b"})
    outcome = brought(path)["chat_attachments"]
    assert all("was not found" in line for line in outcome.left_out)
    assert len(outcome.left_out) == 2
    assert not ChatAttachment.objects.exists()
    assert not (path.parents[2] / "ours" / "attachments").exists()


def test_a_table_without_row_ids_comes_in(path):
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE agents(id TEXT PRIMARY KEY, name, default_engine_id) WITHOUT ROWID")
        file.execute("INSERT INTO agents VALUES ('agent.w', 'W', 'mind.x')")
    file.close()
    assert brought(path)["agents"].added == 1
    assert Agent.objects.get(pk="agent.w").name == "W"


def test_an_attachment_without_a_type_is_told(path):
    file = database(path)
    add(file, "agents", AGENT)
    add(file, "chat_messages", MESSAGE)
    file.executescript(
        "DROP TABLE chat_attachments; CREATE TABLE chat_attachments(id, message_id, storage_type, disk_path)"
    )
    (path.parent / "attachments").mkdir()
    (path.parent / "attachments" / "x").write_text("x")
    add(
        file,
        "chat_attachments",
        {"id": "a", "message_id": "m1", "storage_type": "disk", "disk_path": "attachments/x"},
    )
    assert brought(path)["chat_attachments"].left_out
    assert not list((path.parents[2] / "ours" / "attachments").rglob("*.bin"))


def test_a_file_that_breaks_off_comes_in_as_far_as_it_goes(path):
    file = database(path)
    add(file, "sessions", SESSION)
    add(file, "events", *[{**EVENT, "content": "x" * 3000} for _ in range(400)])
    file.close()
    content = bytearray(path.read_bytes())
    for page in range(len(content) // 2, len(content), 4096):
        content[page : page + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(CommandError, match=r"is damaged: 1 places could not be read\. All else was imported"):
        call_command("import_db", str(path))
