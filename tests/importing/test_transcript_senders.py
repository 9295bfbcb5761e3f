"""Which machines send transcripts, what came of them, and what could not be read, on the pages of Connections."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from urllib.parse import quote

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions.sessions import transcript_senders
from coordinator.actions.sessions.transcript_senders import (
    MAX_OF_KEY,
    MAX_PROBLEMS,
    ImportStatus,
    SenderName,
    TranscriptReading,
    UnreadPart,
    add_reading_to_transcript_sender,
    record_import_status,
)
from coordinator.models import TranscriptProblem, TranscriptSender
from dashboard.connections import imports
from tests.importing.test_sent_transcripts import home, send
from tests.people import person
from tests.served import KEYS, ROOT, Served
from tests.usage.test_page import text_of

__all__ = ["home"]
NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
LAPTOP = SenderName("laptop", "claude-code", "ann-laptop")
BROKEN_FILE = "projects/-home-dev-shop/3f1c8e52-7a90-4d1b-9c55-0a6de1f40001.jsonl"


def machine_page(served: Served, hostname: str) -> str:
    answer = served.sign_in("viewer").get(f"/ui/connections/imports/machine/?host={quote(hostname)}")
    assert answer.status_code == 200, answer.text
    return text_of(answer.text)


def hostname_of_sender(served: Served) -> str:
    ((hostname,),) = served.sql("SELECT DISTINCT hostname FROM transcript_senders")
    return str(hostname)


def list_problems() -> list[tuple[str, int | None, str, int]]:
    problems = TranscriptProblem.objects.order_by("file", "reason")
    return list(problems.values_list("file", "line", "reason", "line_count"))


# --- over HTTP ----------------------------------------------------------------------------------------------


@pytest.mark.served
def test_a_machine_s_page_says_what_came_and_which_line_of_which_file_was_not_read(
    home: Path, served: Served
) -> None:
    assert send(home, served, "--yes", "claude-code", "codex").returncode == 0
    hostname = hostname_of_sender(served)
    overview = text_of(served.sign_in("viewer").get("/ui/connections/imports/").text)
    assert hostname in overview
    assert "Claude Code, Codex" in overview
    page = machine_page(served, hostname)
    assert re.search(r"Claude Code \S+ 5 0 5 ", page)  # the key; files there, not sent yet, read
    assert f"{BROKEN_FILE} Claude Code no JSON 35 1" in page
    assert "Broken or overlong lines" in page
    assert "signalbox import --watch does not run there" in page
    # Once the file is read without it, it is gone.
    path = home / ".claude" / BROKEN_FILE
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for number, line in enumerate(lines, 1) if number != 35))
    send(home, served, "--yes", "claude-code")
    assert "no JSON" not in machine_page(served, hostname)


@pytest.mark.served
def test_a_file_that_cannot_be_sent_is_named_with_its_reason_until_it_is_sent(
    home: Path, served: Served
) -> None:
    database = home / ".local/share/opencode/opencode.db"
    whole = database.read_bytes()
    database.write_bytes(b"no database at all")
    done = send(home, served, "--yes", "opencode")
    assert "cannot be read now" in done.stdout, done.stdout + done.stderr
    page = machine_page(served, hostname_of_sender(served))
    assert "opencode/opencode.db OpenCode cannot be read now" in page
    assert "(not sent)" in page
    assert re.search(r"OpenCode \S+ 1 1 0 ", page)
    database.write_bytes(whole)
    send(home, served, "--yes", "opencode")
    page = machine_page(served, hostname_of_sender(served))
    assert "(not sent)" not in page
    assert re.search(r"OpenCode \S+ 1 0 1 ", page)


@pytest.mark.served
def test_a_watch_is_shown_as_running_until_it_ends(home: Path, served: Served) -> None:
    watch = subprocess.Popen(
        [sys.executable, "-m", "coordinator.client.main", "import", "--watch", "claude-code"],
        cwd=ROOT,
        env={
            "HOME": str(home),
            "PATH": "/usr/bin",
            "SIGNALBOX_URL": served.url,
            "SIGNALBOX_KEY": KEYS["agent"],
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        watching = "SELECT file_count, waiting_count FROM transcript_senders WHERE is_watching"
        pause = Event()
        assert any(served.sql(watching) or pause.wait(0.05) for _ in range(1_200))
        assert served.sql(watching) == [(5, 0)]
        assert "--watch runs there" in machine_page(served, hostname_of_sender(served))
    finally:
        watch.send_signal(signal.SIGINT)
        watch.wait(30)
    assert "--watch does not run there" in machine_page(served, hostname_of_sender(served))


@pytest.mark.served
@pytest.mark.parametrize(
    "change",
    [
        {"agents": [{"agent": "codex", "files": -1, "waiting": 0}]},
        {"agents": [{"agent": "codex", "files": 2**70, "waiting": 0}]},
        {"agents": [{"agent": "", "files": 1, "waiting": 0}]},
        {"agents": [{"agent": "codex\x00", "files": 1, "waiting": 0}]},
        {"agents": [{"agent": "codex", "files": 1, "waiting": 0, "problems": [{"file": "a"}]}]},
        {"host": "h" * 256, "agents": []},
        {},
    ],
)
def test_a_report_that_is_none_is_refused(served: Served, change: dict[str, object]) -> None:
    answer = served.client("agent").post("/api/transcripts", json=change)
    assert answer.status_code == 422, answer.text
    assert served.sql("SELECT count(*) FROM transcript_senders") == [(0,)]


@pytest.mark.served
def test_only_a_key_of_an_agent_may_report(served: Served) -> None:
    body = {"agents": [{"agent": "codex", "files": 1, "waiting": 0}]}
    assert served.client("read").post("/api/transcripts", json=body).status_code == 403
    assert served.client("agent").post("/api/transcripts", json=body).json() == {"ok": True}


# --- what is kept -------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_readings_add_up_and_each_replaces_what_was_unread_of_its_files() -> None:
    first = TranscriptReading(
        ["a", "b"], 1, 5, 2, [UnreadPart("a", "no JSON", 3), UnreadPart("b", "type new", 7, 4)]
    )
    add_reading_to_transcript_sender(LAPTOP, first, now=NOW)
    add_reading_to_transcript_sender(LAPTOP, TranscriptReading(["a"], 0, 1, 5), now=NOW + timedelta(hours=1))
    row = TranscriptSender.objects.get()
    assert (row.read_count, row.session_count, row.event_count, row.known_event_count) == (3, 1, 6, 7)
    assert list_problems() == [("b", 7, "type new", 4)]


@pytest.mark.django_db
def test_what_the_machine_reports_and_what_the_server_read_do_not_replace_each_other() -> None:
    add_reading_to_transcript_sender(
        LAPTOP, TranscriptReading(["a"], unread=[UnreadPart("a", "no JSON", 1)]), now=NOW
    )
    status = ImportStatus(3, 1, is_watching=True, problems=[UnreadPart("c", "too large to send")])
    record_import_status(LAPTOP, status, now=NOW)
    assert [file for file, *_ in list_problems()] == ["a", "c"]
    record_import_status(LAPTOP, ImportStatus(3, 0, is_watching=True), now=NOW)
    assert [file for file, *_ in list_problems()] == ["a"]


@pytest.mark.django_db
def test_secrets_in_names_and_reasons_are_masked() -> None:
    token = "ghp_" + "a1B2" * 9
    unread = [UnreadPart(f"projects/{token}.jsonl", f"type {token}", 1)]
    add_reading_to_transcript_sender(LAPTOP, TranscriptReading([], unread=unread), now=NOW)
    assert token not in json.dumps(list_problems())


@pytest.mark.django_db
def test_a_key_that_makes_up_machines_pushes_out_its_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_senders, "MAX_OF_KEY", 3)
    add_reading_to_transcript_sender(LAPTOP, TranscriptReading(["a"]), now=NOW - timedelta(days=9))
    for number in range(5):
        name = SenderName(f"host-{number}", "codex", "other")
        add_reading_to_transcript_sender(name, TranscriptReading(["a"]), now=NOW + timedelta(minutes=number))
    hosts = TranscriptSender.objects.order_by("id").values_list("hostname", flat=True)
    assert list(hosts) == ["laptop", "host-2", "host-3", "host-4"]
    assert MAX_OF_KEY < transcript_senders.MAX_SENDERS


@pytest.mark.django_db
def test_problems_are_bounded_and_the_longest_names_fit() -> None:
    widest = SenderName("\U0001f40b" * 255, "c" * 99, "\U0001f40b" * 300)
    unread = [UnreadPart("f" * 900 + str(number), "r" * 900, 1) for number in range(3)]
    add_reading_to_transcript_sender(widest, TranscriptReading([], unread=unread), now=NOW)
    assert [count for *_, count in list_problems()] == [3]  # names are cut to the same
    many = [UnreadPart(f"{number}.jsonl", "no JSON", 1) for number in range(MAX_PROBLEMS + 5)]
    add_reading_to_transcript_sender(widest, TranscriptReading([], unread=many), now=NOW + timedelta(hours=1))
    assert TranscriptProblem.objects.count() == MAX_PROBLEMS


# --- the pages ----------------------------------------------------------------------------------------------


@pytest.fixture
def viewer(client: Client, db: None) -> Client:
    client.force_login(person("viewer"))
    return client


def test_the_list_without_machines_says_how_to_begin(viewer: Client) -> None:
    page = text_of(viewer.get("/ui/connections/imports/").content.decode())
    assert "No machine has sent transcripts yet" in page
    assert "Run signalbox import" in page
    assert viewer.get("/ui/connections/imports/machine/").status_code == 404
    assert viewer.get("/ui/connections/imports/machine/?host=nowhere").status_code == 404


def test_machines_and_problems_have_pages(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MACHINES_ON_PAGE", 2)
    monkeypatch.setattr(imports, "PROBLEMS_ON_PAGE", 2)
    for number in range(5):
        name = SenderName(f"host-{number}", "codex", "key")
        unread = [UnreadPart(f"{place}.jsonl", "no JSON", 1) for place in range(3)]
        at = NOW + timedelta(minutes=number)
        add_reading_to_transcript_sender(name, TranscriptReading(["a"], unread=unread), now=at)
    first = text_of(viewer.get("/ui/connections/imports/").content.decode())
    assert "host-4" in first
    assert "host-3" in first
    assert "host-2" not in first
    assert "host-0" in text_of(viewer.get("/ui/connections/imports/?page=3").content.decode())
    second = text_of(viewer.get("/ui/connections/imports/machine/?host=host-1&page=2").content.decode())
    assert "0.jsonl" in second
    assert "2.jsonl" not in second


def test_a_watch_that_neither_reports_nor_ended_is_named(viewer: Client) -> None:
    now = timezone.now()
    record_import_status(LAPTOP, ImportStatus(1, 0, is_watching=True), now=now - timedelta(minutes=4))
    page = text_of(viewer.get("/ui/connections/imports/machine/?host=laptop").content.decode())
    assert "has not ended as it should" in page
    record_import_status(LAPTOP, ImportStatus(1, 0, is_watching=True), now=now)
    page = text_of(viewer.get("/ui/connections/imports/machine/?host=laptop").content.decode())
    assert "--watch runs there" in page


def test_a_machine_without_a_name_has_a_page(viewer: Client) -> None:
    add_reading_to_transcript_sender(SenderName("", "codex"), TranscriptReading(["a"], 1, 2), now=NOW)
    link = '/ui/connections/imports/machine/?host="'
    assert link in viewer.get("/ui/connections/imports/").content.decode()
    page = text_of(viewer.get("/ui/connections/imports/machine/?host=").content.decode())
    assert "none: read on the server" in page


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("too large to send. Copy it", "Too large to send"),
        ("HTTP 422: Reading these transcripts took longer than 120 s.", "Took too long"),
        ("cannot be read now (locked)", "Cannot be opened"),
        ("unreadable file (Permission denied)", "Cannot be opened"),
        ("no JSON", "Broken or overlong lines"),
        ("type holo-note", "Unknown kinds of lines"),
        ("response_item without a type", "Unknown kinds of lines"),
        ("the quota is used up", "Other reasons"),
    ],
)
def test_each_reason_says_what_to_do(reason: str, label: str) -> None:
    assert [name for name, _ in imports.list_advice_for_problem_reasons([reason, reason])] == [label]
