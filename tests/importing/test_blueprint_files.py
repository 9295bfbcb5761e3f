"""Blueprints and capabilities, which the Agent Coordinator keeps as files, are imported with its database."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from coordinator.actions.agents import blueprints as blueprint_actions
from coordinator.identity.actors import system_actor
from coordinator.models import AuditLog, Blueprint, Capability
from coordinator.runs.blueprints import blueprint_with_capabilities_as_json, unmasked_blueprint_as_json
from tests.importing.sources import database
from tests.secrets.corpus import SECRETS

pytestmark = [pytest.mark.django_db, pytest.mark.one_engine]

TOKEN = SECRETS["github"]


def write_folder(home: Path, kind: str, name: str, **files: Any) -> Path:
    """Write a blueprint's or capability's folder: `json`, `mcp` and `text` name its files."""
    stem = {"agents": "agent", "capabilities": "capability"}[kind]
    folder = home / kind / name
    folder.mkdir(parents=True)
    (folder / f"{stem}.json").write_text(json.dumps({"name": name, **files.get("json", {})}))
    if "mcp" in files:
        (folder / f"{stem}.mcp.json").write_text(json.dumps({"mcpServers": files["mcp"]}))
    if "text" in files:
        text_name = "agent.system-prompt.md" if stem == "agent" else "capability.text.md"
        (folder / text_name).write_text(files["text"])
    return folder


def write_coordinator_files(path: Path) -> Path:
    """Write two blueprints and a capability beside the database, and return the folder that they are in."""
    home = path.parent
    database(path).close()
    write_folder(
        home,
        "capabilities",
        "browser",
        json={"description": "Opens pages."},
        text="Open pages with care.",
        mcp={"pages": {"command": "pages", "args": ["--quiet"], "env": {"PAGES_TOKEN": TOKEN}}},
    )
    write_folder(
        home,
        "agents",
        "researcher",
        json={
            "description": "Reads and reports.",
            "type": "autonomous",
            "tags": ["internal"],
            "skills": ["pdf"],
            "capabilities": ["browser"],
            "demands": {"executor_profile": "coding", "tags": ["gpu"]},
        },
        text="Be brief.",
        mcp={"orchestrator": {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": TOKEN}}},
    )
    off = write_folder(home, "agents", "retired", json={"description": "No longer used."})
    (off / ".disabled").touch()
    return home


def run_import(path: Path, *options: str) -> str:
    output = StringIO()
    call_command("import_db", str(path), *options, stdout=output)
    return output.getvalue()


def test_blueprints_and_capabilities_are_imported_with_all_they_have(path: Path) -> None:
    write_coordinator_files(path)
    run_import(path)
    researcher = Blueprint.objects.get(pk="researcher")
    assert (researcher.description, researcher.tags, researcher.skills) == (
        "Reads and reports.",
        ["internal"],
        ["pdf"],
    )
    assert researcher.demands == {"executor_profile": "coding", "tags": ["gpu"]}
    assert {row.name: row.status for row in Blueprint.objects.all()} == {
        "researcher": "active",
        "retired": "inactive",
    }
    resolved = blueprint_with_capabilities_as_json(researcher)
    assert resolved["system_prompt"] == "Be brief.\n\n---\n\nOpen pages with care."
    assert sorted(resolved["mcp_servers"]) == ["orchestrator", "pages"]
    servers = unmasked_blueprint_as_json(researcher)["mcp_servers"]
    assert servers["pages"]["type"] == "stdio"
    assert servers["pages"]["env"] == {"PAGES_TOKEN": TOKEN}


def test_values_of_their_servers_are_sealed(path: Path) -> None:
    write_coordinator_files(path)
    run_import(path)
    stored = json.dumps(
        [Blueprint.objects.get(pk="researcher").mcp_servers, Capability.objects.get().mcp_servers]
    )
    assert TOKEN not in stored
    created = AuditLog.objects.filter(event_type="BLUEPRINT_CREATED")
    assert {row.actor_id for row in created} == {str(system_actor("import"))}


def test_a_second_import_says_what_it_knew_and_changes_nothing(path: Path) -> None:
    write_coordinator_files(path)
    run_import(path)
    before = list(Blueprint.objects.values()) + list(Capability.objects.values())
    lines = {line.split()[0]: line.split()[1:4] for line in run_import(path).splitlines() if line}
    assert lines["blueprints"] == ["2", "0", "2"]
    assert lines["capabilities"] == ["1", "0", "1"]
    assert list(Blueprint.objects.values()) + list(Capability.objects.values()) == before


def test_one_of_the_same_name_stays_and_the_difference_is_listed(path: Path) -> None:
    write_coordinator_files(path)
    ours = {"description": "Ours.", "system_prompt": "Be brief."}
    blueprint_actions.add_blueprint("researcher", ours, actor=system_actor("test"), now=timezone.now())
    output = run_import(path)
    assert Blueprint.objects.get(pk="researcher").description == "Ours."
    (line,) = [line for line in output.splitlines() if line.startswith("conflict")]
    assert "researcher: description" in line
    assert "mcp_servers" in line
    assert "system_prompt" not in line
    (kept_file,) = (path.parents[2] / "ours" / "imports").glob("*/kept.jsonl")
    assert TOKEN not in kept_file.read_text()
    assert "Reads and reports." in kept_file.read_text()


def test_a_dry_run_says_the_same_and_leaves_nothing(path: Path) -> None:
    write_coordinator_files(path)
    dry = [line for line in run_import(path, "--dry-run").splitlines() if "blueprints" in line]
    assert not Blueprint.objects.exists()
    assert not Capability.objects.exists()
    assert list((path.parents[2] / "ours").iterdir()) == []
    assert [line for line in run_import(path).splitlines() if "blueprints" in line] == dry


def test_another_folder_may_be_named(path: Path, tmp_path: Path) -> None:
    database(path).close()
    elsewhere = tmp_path / "shared"
    write_folder(elsewhere, "agents", "writer", json={"description": "Writes."})
    assert "blueprints" not in run_import(path)
    run_import(path, "--agents", str(elsewhere / "agents"))
    assert Blueprint.objects.get().name == "writer"
    with pytest.raises(CommandError, match="is no folder"):
        run_import(path, "--agents", str(tmp_path / "nowhere"))


ODD_FILES = {
    "no JSON": b"{",
    "no object": b"[1]",
    "no description": b'{"name": "odd"}',
    "not text": b'{"name": "odd", "description": 3}',
    "no type": b'{"name": "odd", "description": "d", "type": "other"}',
    "a bad name": b'{"name": "../odd", "description": "d"}',
    "NUL": b'{"name": "odd\\u0000", "description": "d"}',
    "deep": b"[" * 100_000,
    "not UTF-8": b'{"name": "odd", "description": "\xff"}',
    "large": b'{"name": "odd", "description": "' + b"x" * 3 * 1024**2 + b'"}',
}


@pytest.mark.parametrize("content", ODD_FILES.values(), ids=list(ODD_FILES))
def test_a_folder_that_cannot_be_read_is_named_and_the_others_are_imported(
    path: Path, content: bytes
) -> None:
    home = write_coordinator_files(path)
    (home / "agents" / "odd").mkdir()
    (home / "agents" / "odd" / "agent.json").write_bytes(content)
    left_out = [line for line in run_import(path).splitlines() if line.startswith("left out: blueprints")]
    assert len(left_out) == 1
    assert "odd" in left_out[0]
    assert Blueprint.objects.count() == 2


def test_a_link_out_of_the_folder_is_not_followed(path: Path, tmp_path: Path) -> None:
    home = write_coordinator_files(path)
    outside = tmp_path / "outside.md"
    outside.write_text("a private text")
    (home / "agents" / "retired" / "agent.system-prompt.md").symlink_to(outside)
    output = run_import(path)
    assert "retired: agent.system-prompt.md is no file of this folder" in output
    assert not Blueprint.objects.filter(pk="retired").exists()


def test_what_has_no_place_here_is_named_and_kept(path: Path) -> None:
    home = write_coordinator_files(path)
    write_folder(
        home,
        "agents",
        "checker",
        json={"description": "d", "output_schema": {"type": "object"}, "capabilities": ["gone"]},
        mcp={"by-name": {"ref": "registry"}, "files": {"command": "files"}},
    )
    output = run_import(path)
    assert "checker was imported without MCP server by-name, output_schema" in output
    assert "checker needs capabilities that are not here: gone." in output
    assert list(Blueprint.objects.get(pk="checker").mcp_servers) == ["files"]
