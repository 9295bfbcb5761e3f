"""Who runs Signalbox where agents work is told so: by the doctor, at the start, and on an admin's first page."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from django.test import Client

from coordinator.operations.doctor import CheckLevel, shared_user
from coordinator.operations.doctor.machine import check_agents_use_another_user
from tests.people import signed_in


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shared_user, "find_user_home", lambda _uid: tmp_path)
    monkeypatch.setattr(shared_user, "iterate_agent_process_names", lambda _uid: iter(()))
    monkeypatch.setattr(shared_user, "is_login_user", lambda _uid: False)
    shared_user.find_shared_user_problem_cached.cache_clear()
    return tmp_path


@pytest.mark.parametrize("trace", [".claude", ".codex", ".gemini", ".config/opencode"])
def test_traces_of_agents_in_the_users_home_are_told(home: Path, trace: str) -> None:
    assert check_agents_use_another_user().level is CheckLevel.OK
    (home / trace).mkdir(parents=True)
    check = check_agents_use_another_user()
    assert check.level is CheckLevel.WARN
    assert trace in check.message
    assert "install_service" in check.remedy


def test_an_agent_at_work_as_the_user_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        shared_user, "iterate_agent_process_names", lambda _uid: iter(["codex", "claude", "codex"])
    )
    assert (shared_user.find_shared_user_problem(0) or "").startswith("claude and codex run as root")


def test_a_login_user_without_agents_yet_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_user, "is_login_user", lambda _uid: True)
    assert "people sign in as" in (shared_user.find_shared_user_problem(os.geteuid()) or "")


def test_a_process_is_known_by_its_name() -> None:
    Path("/proc/self/comm").write_text("claude")
    try:
        assert "claude" in set(shared_user.iterate_agent_process_names(os.geteuid()))
    finally:
        Path("/proc/self/comm").write_text("pytest")


def test_users_without_a_home_or_a_name_are_no_error() -> None:
    assert shared_user.find_shared_user_problem(4_000_000_000) is None
    assert not shared_user.is_login_user(pwd.getpwnam("nobody").pw_uid)


@pytest.mark.django_db
@pytest.mark.parametrize(("role", "told"), [("admin", True), ("approver", False), ("viewer", False)])
def test_an_admins_first_page_says_it(home: Path, role: str, told: bool) -> None:
    (home / ".claude").mkdir()
    client: Client = signed_in(role)
    page = client.get("/ui/").content.decode()
    assert ("install_service" in page) is told
