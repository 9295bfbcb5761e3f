"""`signalbox import`: a machine sends what its agents have written, once, into sessions of its own key."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from coordinator.client.transcript_locations import TRANSCRIPT_PLACES
from coordinator.dialects.transcripts import TRANSCRIPTS
from coordinator.management.commands import read_uploaded_transcripts as reader
from tests.served import KEYS, ROOT, Served, manage
from tests.transcripts.recorded import copied

CLAUDE = ROOT / "tests/data/claude_code/transcripts"
# Where each agent keeps the recorded files.
HOMES = {"codex": ".codex", "copilot": ".copilot", "gemini": ".gemini", "qwen-code": ".qwen"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of somebody who has used every agent."""
    folder = tmp_path / "home"
    for agent, name in HOMES.items():
        copied(agent, tmp_path / "recorded")
        shutil.copytree(tmp_path / "recorded" / agent, folder / name)
    for agent in ("opencode", "kilo"):
        copied(agent, tmp_path / "recorded")
        shutil.copytree(tmp_path / "recorded" / agent, folder / ".local/share" / agent)
    shutil.copytree(CLAUDE, folder / ".claude/projects")
    return folder


def send(
    home: Path, served: Served, *words: str, key: str = "agent", given: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coordinator.client.main", "import", *words],
        cwd=ROOT,
        env={
            "HOME": str(home),
            "PATH": os.defpath,
            "SIGNALBOX_URL": served.url,
            "SIGNALBOX_KEY": KEYS.get(key, key),
        },
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def add_prompt(home: Path) -> None:
    """Have a session go on."""
    path = home / ".claude/projects/-home-dev-shop/3f1c8e52-7a90-4d1b-9c55-0a6de1f40003.jsonl"
    line = json.loads(path.read_text().splitlines()[-1])
    line |= {
        "type": "user",
        "parentUuid": line["uuid"],
        "uuid": "11111111-1111-4111-8111-111111111111",
        "timestamp": "2026-11-20T10:00:00.000Z",
    }
    line["message"] = {"role": "user", "content": "One thing more."}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def count_events(served: Served) -> int:
    return int(served.sql("SELECT count(*) FROM events")[0][0])


@pytest.mark.parametrize("agent", sorted(TRANSCRIPTS))
def test_the_client_finds_what_the_server_reads(
    agent: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    place, program = TRANSCRIPT_PLACES[agent], TRANSCRIPTS[agent]
    assert (place.home_in, place.home, place.folders) == (program.home_in, program.home, program.folders)
    folders = [home / place.home / folder for folder in program.folders]
    read = {str(path) for folder in folders for path in folder.rglob("*") if program.is_one(path)}
    assert {path for _, path in place.iterate_files({})} == read != set()


@pytest.mark.served
def test_everything_is_sent_once_and_nothing_twice(home: Path, served: Served) -> None:
    shown = send(home, served, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "claude-code  5 files to send" in shown.stdout
    assert count_events(served) == 0
    refused = send(home, served, given="n\n")
    assert "Nothing was sent." in refused.stdout
    done = send(home, served, "--yes")
    assert "Sent 12 files" in done.stdout, done.stdout + done.stderr
    events = count_events(served)
    assert events > 50
    assert "There is nothing to send." in send(home, served, "--yes").stdout
    shutil.rmtree(home / ".local/state")  # what was sent is not known any more
    again = send(home, served, "--yes")
    assert ": 0 new events" in again.stdout, again.stdout + again.stderr
    assert count_events(served) == events
    agents = {name for (name,) in served.sql("SELECT DISTINCT executor_profile FROM sessions")}
    assert agents == set(TRANSCRIPTS)
    hosts = {name for (name,) in served.sql("SELECT DISTINCT hostname FROM sessions")}
    assert len(hosts) == 1


@pytest.mark.served
def test_only_what_has_grown_is_sent_again(home: Path, served: Served) -> None:
    send(home, served, "--yes", "claude-code")
    add_prompt(home)
    done = send(home, served, "--yes", "claude-code")
    assert "1 files to send" in done.stdout
    assert "Sent 1 files: 1 new events in 0 new and 1 known sessions" in done.stdout, done.stdout


@pytest.mark.served
def test_what_cannot_be_read_is_named_and_audited(home: Path, served: Served) -> None:
    done = send(home, served, "--yes", "claude-code")
    assert done.returncode == 0, done.stderr
    place = "projects/-home-dev-shop/3f1c8e52-7a90-4d1b-9c55-0a6de1f40001.jsonl"
    assert f"not read: {place}:35: no JSON (1 lines)" in done.stdout, done.stdout
    assert "unfinished" not in done.stdout  # it is read once it has its end
    (metadata,) = served.sql("SELECT metadata FROM audit_logs WHERE event_type = 'TRANSCRIPTS_IMPORTED'")[0]
    assert json.loads(metadata)["not_understood"] == {"no JSON": 1, "type holo-note": 1}


@pytest.mark.served
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{}", "must be a zip archive"),
        (b"PK but no archive", "cannot be read"),
        ("outside", "lies outside"),
    ],
)
def test_an_archive_that_is_none_changes_nothing(served: Served, body: bytes | str, said: str) -> None:
    if isinstance(body, str):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("../../secret_key", "mine")
        body = buffer.getvalue()
    answer = served.client("agent").post(
        "/api/transcripts/claude-code", content=body, headers={"Content-Type": "application/zip"}
    )
    assert answer.status_code == 422
    assert said in answer.json()["detail"], answer.text
    assert not list(Path(served.folder).glob("transcripts-*"))


def test_an_archive_may_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("projects/a.jsonl", bytes(10 << 20))
    monkeypatch.setattr(reader, "MOST_UNPACKED_BYTES", 1 << 20)
    buffer.seek(0)
    monkeypatch.setattr(reader.sys, "stdin", type("Stdin", (), {"buffer": buffer}))
    with pytest.raises(reader.CommandError, match="unpacks to more than 1 MiB"):
        reader.unpack_transcript_zip_from_stdin(tmp_path)


@pytest.mark.served
def test_a_key_adds_nothing_to_sessions_of_another_agent(home: Path, served: Served) -> None:
    send(home, served, "--yes", "claude-code", key="all")
    made = dict(served.sql("SELECT session_id, count(*) FROM events GROUP BY session_id"))
    words = ["apikey", "create", "other-machine", "--scope", "agent", "--agent", "agent.other"]
    key = manage(*words, env=served.env).stdout.strip().splitlines()[-1]
    add_prompt(home)
    done = send(home, served, "--yes", "claude-code", key=key)
    assert "1 new events in 1 new and 0 known sessions" in done.stdout, done.stdout + done.stderr
    ((own,),) = served.sql("SELECT session_id FROM sessions WHERE agent_name = 'agent.other'")
    counts = dict(served.sql("SELECT session_id, count(*) FROM events GROUP BY session_id"))
    counts.pop(own)
    assert counts == made
