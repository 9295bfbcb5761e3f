"""`manage.py install_service`: a user of its own, a closed data folder, a unit that systemd accepts; and its end."""

from __future__ import annotations

import contextlib
import io
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from coordinator.operations import service
from coordinator.operations.service import SystemdService
from tests.served import ROOT

NOBODY = 65534
as_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("useradd") is None, reason="makes a system user: needs root and useradd"
)


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SystemdService]:
    """A service of a name that nobody has, whose files lie below `tmp_path`; its user is removed afterwards."""
    monkeypatch.setattr(service, "HIDDEN", ())
    monkeypatch.setattr(service, "generate_systemctl_steps", lambda *_: iter(()))
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder.stat().st_mode & 0o077 == 0:
            folder.chmod(0o755)  # the service's user has to get to its folder
    name = f"sbx-{uuid.uuid4().hex[:8]}"
    yield SystemdService(name, tmp_path / "data", tmp_path / "box.env", units=tmp_path)
    for user in (name, f"{name}-mcp"):
        if service.find_system_user(user) is not None:
            subprocess.run(["userdel", user], check=True)


def install(wanted: SystemdService) -> list[str]:
    """Do what is to be done and return what that was."""
    service.require_installable(wanted)
    steps = list(service.generate_install_steps(wanted))
    for _says, act in steps:
        act()
    return [says for says, _act in steps]


def as_user(
    name: str | int, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    user = pwd.getpwuid(name) if isinstance(name, int) else pwd.getpwnam(name)
    return subprocess.run(
        words, user=user.pw_uid, group=user.pw_gid, extra_groups=[], env=env or {"PATH": os.environ["PATH"]},
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def python_for(name: str) -> str:
    """Return a Python of our version that the user may start, and that finds our packages."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    for place in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        with contextlib.suppress(OSError):
            if as_user(name, place, "-c", "import django, coordinator", env=env).returncode == 0:
                return place
    pytest.skip(f"no {version} and packages that another user may read: ours may lie in root's home")


@as_root
def test_it_makes_a_user_a_folder_and_files_and_does_nothing_more_the_second_time(
    wanted: SystemdService,
) -> None:
    assert len(install(wanted)) == 10
    user = pwd.getpwnam(wanted.name)
    assert (user.pw_shell, user.pw_uid < 1000) == ("/usr/sbin/nologin", True)
    paths = (wanted.data, wanted.settings, wanted.unit_path, wanted.socket_unit_path)
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o700, 0o600, 0o644, 0o644]
    assert (wanted.data.stat().st_uid, wanted.settings.stat().st_uid) == (user.pw_uid, 0)
    assert install(wanted) == []


@as_root
def test_its_settings_are_kept_when_it_is_run_again(wanted: SystemdService) -> None:
    install(wanted)
    wanted.settings.write_text("SIGNALBOX_BIND=10.0.0.11:8765\n")
    wanted.settings.chmod(0o644)
    closed, moved = install(wanted)
    assert closed == f"chmod 600 {wanted.settings}"
    assert f"write {wanted.socket_unit_path}" in moved
    assert "ListenStream=10.0.0.11:8765\n" in wanted.socket_unit_path.read_text()
    assert wanted.settings.read_text() == "SIGNALBOX_BIND=10.0.0.11:8765\n"


@as_root
def test_another_user_reads_neither_database_nor_key_of_the_service(wanted: SystemdService) -> None:
    """The unit's own program and settings, started as its user by hand; then somebody else looks."""
    install(wanted)
    lines = wanted.settings.read_text().splitlines()
    env = {name: value for name, _, value in (line.partition("=") for line in lines if line[0] != "#")}
    env |= {
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    python = python_for(wanted.name)
    made = as_user(wanted.name, python, "manage.py", "migrate", "--verbosity=0", env=env)
    assert made.returncode == 0, made.stderr
    for name in ("signalbox.sqlite3", "secret_key"):
        assert (wanted.data / name).stat().st_mode & 0o077 == 0
        seen = as_user(NOBODY, "cat", str(wanted.data / name))
        assert (seen.returncode, seen.stdout) == (1, "")
        assert "Permission denied" in seen.stderr
    tried = as_user(NOBODY, python, "manage.py", "apikey", "list", env=env)
    assert tried.returncode == 1
    assert "cannot be used" in tried.stderr
    assert "Traceback" not in tried.stderr


@as_root
def test_removing_keeps_the_data_unless_asked(wanted: SystemdService) -> None:
    install(wanted)
    for _says, act in list(service.generate_removal_steps(wanted, delete_data=False)):
        act()
    assert list(wanted.units.glob("*.service")) + list(wanted.units.glob("*.socket")) == []
    assert [wanted.data.exists(), wanted.settings.exists()] == [True, True]
    for _says, act in list(service.generate_removal_steps(wanted, delete_data=True)):
        act()
    assert not wanted.data.exists()
    assert [service.find_system_user(name) for name in (wanted.name, wanted.mcp_server_user_name)] == [
        None,
        None,
    ]
    assert list(service.generate_removal_steps(wanted, delete_data=True)) == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(wanted: SystemdService) -> None:
    units = write_units(wanted)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, units)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, wanted.name in done.stderr) == (0, False), done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_units_leave_what_they_start_little(wanted: SystemdService) -> None:
    """By systemd's own measure, from 0 to 10; 2 and less is "OK"."""
    for unit in write_units(wanted):
        if unit.suffix == ".service":
            command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", f"./{unit.name}"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=wanted.units, check=False)
            assert done.returncode == 0, done.stdout.splitlines()[-1:]


def write_units(wanted: SystemdService) -> list[Path]:
    """Write all units, with a user that exists everywhere, and return their files."""
    texts = {
        wanted.unit_path: wanted.render_service_unit(),
        wanted.socket_unit_path: wanted.render_socket_unit(),
        **wanted.render_mcp_units(),
    }
    names = re.compile(rf"^(User|Group)={wanted.name}(-mcp)?$", re.MULTILINE)
    for unit, text in texts.items():
        unit.write_text(names.sub(r"\1=daemon", text))
    return list(texts)


def test_mcp_servers_of_a_service_see_neither_its_data_nor_what_listens_on_the_machine_alone(
    wanted: SystemdService,
) -> None:
    units = {path.name: text for path, text in wanted.render_mcp_units().items()}
    for network, reach in (("none", "PrivateNetwork=yes"), ("machine", "IPAddressDeny=localhost link-local")):
        text = units[f"{wanted.name}-mcp-{network}@.service"].splitlines()
        for line in (
            reach, f"User={wanted.mcp_server_user_name}", f"InaccessiblePaths=-{wanted.data} -{wanted.settings}",
            "TemporaryFileSystem=/run:ro /var:ro", "ProtectHome=tmpfs", "NoNewPrivileges=yes",
        ):  # fmt: skip
            assert line in text
        assert "KillMode=process" not in text
        socket = units[f"{wanted.name}-mcp-{network}.socket"].splitlines()
        assert [line for line in socket if line.startswith("Socket")][:1] == [f"SocketUser={wanted.name}"]
        assert "SocketMode=0600" in socket
    assert (
        f"Environment=SIGNALBOX_MCP_LAUNCHER={wanted.mcp_folder}" in wanted.render_service_unit().splitlines()
    )


def test_a_dry_run_says_everything_and_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HIDDEN", ())
    monkeypatch.setattr(service, "explain_who_can_replace_folder", lambda _place: None)
    out, place = io.StringIO(), {"data_dir": tmp_path / "data", "env_file": tmp_path / "box.env"}
    call_command("install_service", name="sbx-dry", dry_run=True, stdout=out, **place)
    assert "ListenStream=127.0.0.1:8765" in out.getvalue()
    for word in ("useradd --system", f"make {tmp_path}/data", "SIGNALBOX_DATA_DIR=", "ProtectSystem=strict"):
        assert word in out.getvalue()
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_from_the_command_line_leaves_no_data_folder_behind(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "SIGNALBOX_DATA_DIR": str(tmp_path / "data")}
    subprocess.run(
        [sys.executable, "manage.py", "install_service", "--dry-run"], cwd=ROOT, env=env, check=False
    )
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_a_login_user_may_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot see.*pip install"):
        service.require_installable(SystemdService(code=Path("/home/maria/signalbox")))
    folder = tmp_path / "code"
    folder.mkdir()
    folder.chmod(0o777)
    service_of = SystemdService(code=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "HIDDEN", ())
        with pytest.raises(CommandError, match="Others could change the program"):
            service.require_installable(service_of)


@pytest.mark.parametrize("name", ["root", "a b", "x\nUser=root", "Ümlaut"])
def test_a_name_that_is_no_users_own_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HIDDEN", ())
    monkeypatch.setattr(service, "explain_who_can_replace_folder", lambda _place: None)
    with pytest.raises(CommandError, match=r"users? of its own|cannot be a user's name|one of its own"):
        service.require_installable(SystemdService(name))


def test_a_unit_of_somebody_elses_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HIDDEN", ())
    monkeypatch.setattr(service, "explain_who_can_replace_folder", lambda _place: None)
    wanted = SystemdService("sbx-none", tmp_path / "data", tmp_path / "box.env", units=tmp_path)
    wanted.unit_path.write_text("[Service]\nExecStart=/bin/true\n")
    with pytest.raises(CommandError, match="was not made by this command"):
        service.require_installable(wanted)
