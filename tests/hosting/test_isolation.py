"""Programs that Signalbox starts for others have none of its rights; where nothing isolates them, none is started."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coordinator.errors import UnprocessableRequest
from coordinator.lib import installation
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.isolation.process_isolation import Isolation, IsolationUnavailable
from coordinator.mcp.servers import discovery
from coordinator.models.gateway import Network
from coordinator.sandbox.limits import NOBODY
from tests.patience import until
from tests.processes import processes_naming

pytestmark = pytest.mark.one_engine
EVIL = Path(__file__).with_name("evil_program.py")
SYSTEM_PYTHON = "/usr/bin/python3"
ITS_OWN = {"write to its own folder", "leave a process", "write to /tmp"}  # what each may do


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder that every user may pass, unlike those of pytest."""
    usual = os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="sbx-isolation-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
    os.umask(usual)


@dataclass
class Machine:
    """What there is to attack: a data folder, another process with a secret, and sockets that listen."""

    data: Path
    own: Path
    other: subprocess.Popen[bytes]
    targets: dict[str, Any]
    stack: ExitStack = field(default_factory=ExitStack)

    def attack(self, command: list[str], wanted: Isolation | None = None, **started: Any) -> dict[str, str]:
        """Start the evil program with `command` (an interpreter) and return its report."""
        line = isolation.prepare_isolated_command_line(
            [*command, str(EVIL), json.dumps(self.targets)], self.own, wanted or Isolation()
        )
        done = subprocess.run(
            line, input=b"\n", env=isolation.build_base_process_environment(self.own), cwd="/",
            capture_output=True, timeout=60, check=False, **started,
        )  # fmt: skip
        assert done.stdout, done.stderr.decode()
        report: dict[str, str] = json.loads(done.stdout)
        return report


@pytest.fixture
def machine(place: Path, settings: Any) -> Iterator[Machine]:
    data = place / "data"
    own, others = data / "mcp" / "own", data / "mcp" / "other"
    for folder in (own, others):
        folder.mkdir(parents=True)
    data.chmod(0o700)
    settings.DATA_DIR, settings.AUDIT_KEY_FILE = data, data / "audit_key"
    database = data / "signalbox.sqlite3"
    settings.DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(database)}}
    with ExitStack() as stack:
        for name in ("secret_key", "credential_keys", "audit_key"):
            (data / name).write_text("secret")
            (data / name).chmod(0o600)
        with sqlite3.connect(database) as connection:
            connection.execute("CREATE TABLE permission_requests (status text)")
            connection.execute("INSERT INTO permission_requests VALUES ('pending')")
        marker = f"marker-{os.getpid()}"
        other = subprocess.Popen(["sleep", "300"], env={"SIGNALBOX_SECRET_KEY": marker})
        stack.callback(other.wait)
        stack.callback(other.kill)
        addresses = []
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            listener = stack.enter_context(socket.socket(family))
            listener.bind((host, 0))
            listener.listen()
            addresses.append(listener.getsockname()[:2])
        abstract = f"@signalbox-test-{os.getpid()}"
        for name in ("\0" + abstract[1:], str(data / "mcp-stdio.sock"), str(place / "s.PGSQL.5432")):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(name)
            listener.listen()
        targets = {
            "files": [str(data / name) for name in ("secret_key", "credential_keys", "audit_key")],
            "data": str(data),
            "others": str(others),
            "database": str(database),
            "marker": marker,
            "token": f"token-{os.getpid()}",
            "pid": other.pid,
            "addresses": addresses,
            "sockets": [abstract, str(data / "mcp-stdio.sock"), str(place / "s.PGSQL.5432")],
            "folders": ["/", "/usr", "/etc", "/opt", "/tmp", str(place), str(data), str(installation.CODE)],
        }
        yield Machine(data, own, other, targets)


def assert_held(machine: Machine, report: dict[str, str], *, but: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Assert that nothing worked but what each program may do, and that nothing came of it on the machine."""
    worked = {name for name, outcome in report.items() if outcome.startswith("did")}
    assert worked - ITS_OWN == set(but), report
    assert (machine.own / "own").read_text() == "x"
    with sqlite3.connect(machine.data / "signalbox.sqlite3") as connection:
        assert connection.execute("SELECT status FROM permission_requests").fetchall() == [("pending",)]
    assert [folder for folder in machine.targets["folders"] if Path(folder, "signalbox-evil").exists()] == []
    until(lambda: not processes_naming(machine.targets["token"]))


def test_a_program_in_bubblewrap_has_none_of_our_rights(machine: Machine) -> None:
    assert_held(machine, machine.attack([sys.executable]))


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path(SYSTEM_PYTHON).exists(), reason="needs root, for another user"
)
def test_a_program_in_bubblewrap_has_none_of_the_rights_of_a_user_who_is_not_root(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for base, folders, files in os.walk(machine.data):
        for name in (".", *folders, *files):
            os.chown(Path(base, name), NOBODY, NOBODY)
    machine.other.kill()
    same_user = subprocess.Popen(
        ["sleep", "300"], env={"X": machine.targets["marker"]}, user=NOBODY, group=NOBODY
    )
    machine.targets["pid"] = same_user.pid
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    try:
        report = machine.attack([SYSTEM_PYTHON], user=NOBODY, group=NOBODY, extra_groups=[])
    finally:
        same_user.kill()
        same_user.wait()
    assert_held(machine, report)


def test_the_network_of_the_machine_is_reached_only_where_an_admin_gave_it(machine: Machine) -> None:
    report = machine.attack([sys.executable], Isolation(network=Network.MACHINE.value))
    reached = {"connect to 0 127.0.0.1", "connect to 1 ::1", f"connect to {machine.targets['sockets'][0]}"}
    assert_held(machine, report, but=reached)


def test_without_isolation_the_same_attack_works(machine: Machine) -> None:
    """So that the tests above show something."""
    report = machine.attack([sys.executable], Isolation(is_off=True))
    assert report["approve"].startswith("did: 1")
    assert all(report[f"read {path}"].startswith("did") for path in machine.targets["files"])
    for folder in machine.targets["folders"]:
        Path(folder, "signalbox-evil").unlink(missing_ok=True)
    Path("/own").unlink(missing_ok=True)
    for pid in processes_naming(machine.targets["token"]):
        os.kill(pid, 9)


def test_folders_are_given_to_read_or_to_write(machine: Machine, place: Path) -> None:
    for name in ("read", "write"):
        (place / name).mkdir()
        (place / name).chmod(0o777)
        (place / name / "file").write_text("x")
    source = (
        "from pathlib import Path\n"
        f"print(Path('{place}/read/file').read_text(), Path('{place}/write/new').write_text('y'))\n"
        f"Path('{place}/read/new').write_text('z')"
    )
    wanted = Isolation(folders=(str(place / "read"),), writable_folders=(str(place / "write"),))
    line = isolation.prepare_isolated_command_line([sys.executable, "-c", source], machine.own, wanted)
    done = subprocess.run(
        line,
        env=isolation.build_base_process_environment(machine.own),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "x 1\n", done.stderr
    assert "Read-only file system" in done.stderr
    assert (place / "write" / "new").read_text() == "y"


def test_what_belongs_to_signalbox_is_given_to_no_server(machine: Machine, place: Path) -> None:
    home = Path(os.path.expanduser("~"))
    (place / "link").symlink_to(machine.data)
    refused = [
        "/",
        "/proc",
        "/run/postgresql",
        "relative",
        f"{place}/../x",
        str(machine.data),
        str(machine.data / "x"),
    ]
    for path in (*refused, str(place), str(place / "link"), str(home)):
        with pytest.raises(UnprocessableRequest):
            isolation.require_valid_isolation(Isolation(folders=(path,)))
    for path in (str(installation.CODE), sys.prefix, str(home / ".config"), str(installation.CODE.parent)):
        with pytest.raises(UnprocessableRequest):
            isolation.require_valid_isolation(Isolation(writable_folders=(path,)))
    isolation.require_valid_isolation(Isolation(folders=("/srv", str(installation.CODE))))


def test_an_argument_that_names_what_belongs_to_signalbox_shows_nothing_of_it(machine: Machine) -> None:
    paths = [str(machine.data), str(machine.data / "secret_key")]
    line = isolation.prepare_isolated_command_line(["cat", *paths], machine.own, Isolation())
    assert (
        str(machine.data / "audit_key")
        not in isolation.prepare_isolated_command_line(
            ["cat", f"--file={machine.data / 'audit_key'}"], machine.own, Isolation()
        )[:-1]
    )
    done = subprocess.run(
        line,
        env=isolation.build_base_process_environment(machine.own),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("", 1)
    assert "No such file" in done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("script", ["package/dist/index.mjs", "node_modules/package/dist/index.mjs"])
def test_a_script_of_node_finds_what_it_imports_and_nothing_beside_its_package(
    machine: Machine, place: Path, script: str
) -> None:
    index = place / "work" / script
    package, library = index.parents[1], index.parents[2] / "library"
    index.parent.mkdir(parents=True)
    (package / "package.json").write_text("{}")
    imported = package / "lib.mjs"
    if library.parent.name == "node_modules":
        library.mkdir()
        imported = library / "index.js"
        (library / "package.json").write_text('{"type": "module"}')
        index.write_text('import { word } from "library"; console.log(word);')
    else:
        index.write_text('import { word } from "../lib.mjs"; console.log(word);')
    imported.write_text('export const word = "found";')
    (place / "work" / "beside").write_text("secret")
    line = isolation.prepare_isolated_command_line(["node", str(index)], machine.own, Isolation())
    done = subprocess.run(
        line,
        env=isolation.build_base_process_environment(machine.own),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("found\n", 0), done.stderr
    assert not any(
        word.endswith(("/beside", "/work")) and "bind" in before for before, word in pairwise(line)
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes nobody")
def test_what_makes_root_nobody_is_not_looked_up_in_the_program_s_path(machine: Machine, place: Path) -> None:
    folder = place / "work" / "bin"
    folder.mkdir(parents=True)
    (folder / "setpriv").write_text("#!/bin/sh\nid -u\n")
    (folder / "setpriv").chmod(0o755)
    wanted = Isolation(writable_folders=(str(place / "work"),))
    line = isolation.prepare_isolated_command_line(["sh", "-c", "id -u"], machine.own, wanted)
    variables = isolation.build_base_process_environment(machine.own) | {
        "PATH": f"{folder}:{os.environ['PATH']}"
    }
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=False)
    assert done.stdout == f"{NOBODY}\n", done.stderr


@pytest.mark.parametrize("way", ["argument", "folder", "writable folder", "library", "program"])
def test_a_link_where_a_server_may_write_shows_nothing_more(machine: Machine, place: Path, way: str) -> None:
    work, secret = place / "work", place / "elsewhere" / "secret"
    (work / "bin").mkdir(parents=True)
    secret.mkdir(parents=True)
    (secret / "file").write_text("secret")
    (work / "bin" / "server").symlink_to(shutil.which("cat") or "")
    readable: tuple[str, ...] = ()
    writable = [str(work)]
    command = ["cat"]
    if way == "library":
        (work / "lib").symlink_to(secret)
        command[0] = str(work / "bin" / "server")
    elif way == "program":
        command[0] = str(work / "bin" / "server")
        (work / "bin" / "server").unlink()
        (work / "bin" / "server").write_text(f"#!{secret}/bin/sh\n")
        (work / "bin" / "server").chmod(0o755)
        (secret / "bin").mkdir()
        (secret / "bin" / "sh").symlink_to(shutil.which("sh") or "")
    else:
        (work / "data").symlink_to(secret)
        (place / "usual").symlink_to(work)  # an admin's own link leads there, too
        named = str(place / "usual" / "data")
        command += [named] if way == "argument" else []
        readable = (named,) if way == "folder" else ()
        writable += [named] if way == "writable folder" else []
    line = isolation.prepare_isolated_command_line(
        command, machine.own, Isolation("none", readable, tuple(writable))
    )
    given = line[: line.index("--")]
    assert str(work) in given
    assert not [word for word in given if Path(word).is_relative_to(place / "elsewhere")]


def test_folders_that_every_program_writes_to_are_not_given(machine: Machine) -> None:
    for path in ("/tmp", "/var/tmp", "/var", tempfile.gettempdir()):
        with pytest.raises(UnprocessableRequest, match="cannot be given"):
            isolation.require_valid_isolation(Isolation(folders=(path,)))
    line = isolation.prepare_isolated_command_line(["ls", "-A", "/tmp"], machine.own, Isolation())
    with tempfile.NamedTemporaryFile(dir="/tmp"):
        done = subprocess.run(
            line, env=isolation.build_base_process_environment(machine.own), capture_output=True, check=False
        )
    assert done.stdout == b"", done.stderr


def test_folders_of_programs_that_signalbox_starts_are_not_given_to_write(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{place}/bin")
    isolation.require_valid_isolation(Isolation(folders=(str(place),)))
    for path in (place, place / "bin"):
        with pytest.raises(UnprocessableRequest, match="holds what Signalbox runs"):
            isolation.require_valid_isolation(Isolation(writable_folders=(str(path),)))


def test_sockets_of_postgresql_are_given_to_no_server(place: Path, settings: Any) -> None:
    engine = "django.db.backends.postgresql"
    settings.DATABASES = {"default": {"ENGINE": engine, "NAME": "signalbox", "HOST": str(place / "sockets")}}
    for path in (place, place / "sockets"):
        with pytest.raises(UnprocessableRequest, match="holds data of Signalbox"):
            isolation.require_valid_isolation(Isolation(folders=(str(path),)))


@pytest.mark.parametrize("kind", ["venv", "nvm", "shims", "local"])
def test_programs_installed_in_a_home_folder_run(machine: Machine, place: Path, kind: str) -> None:
    """As pyenv, nvm and uv install them: a link or a script that leads to a program elsewhere in the home folder."""
    home = place / "home"
    if kind == "nvm":
        tool = home / ".nvm/versions/node/v22"
        (tool / "lib/node_modules/npm/bin").mkdir(parents=True)
        (tool / "bin").mkdir()
        script = tool / "lib/node_modules/npm/bin/npx-cli.js"
        script.write_text("#!/usr/bin/env sh\n. $(dirname $(readlink -f $0))/../lib.sh\n")
        (tool / "lib/node_modules/npm/lib.sh").write_text("echo ran\n")
        (tool / "bin" / "tool").symlink_to("../lib/node_modules/npm/bin/npx-cli.js")
    elif kind == "shims":
        tool = home / ".pyenv"
        (tool / "shims").mkdir(parents=True)
        (tool / "versions").mkdir()
        (tool / "versions" / "real").write_text("#!/bin/sh\necho ran\n")
        script = tool / "shims" / "tool"
        script.write_text(f"#!/usr/bin/env bash\nexec sh {tool}/versions/real\n")
    else:
        tool = home / (".local" if kind == "local" else "venv")
        (tool / "bin").mkdir(parents=True)
        script = tool / "bin" / "tool"
        script.write_text('#!/bin/sh\nexec "$(dirname $0)/helper"\n')
        (tool / "bin" / "helper").write_text("#!/bin/sh\necho ran\n")
        (tool / "bin" / "helper").chmod(0o755)
        (tool / "share").mkdir()
        (tool / "share" / "secret").write_text("secret")
    script.chmod(0o755)
    program = tool / ("shims" if kind == "shims" else "bin") / "tool"
    line = isolation.prepare_isolated_command_line([str(program)], machine.own, Isolation())
    done = subprocess.run(
        line,
        env=isolation.build_base_process_environment(machine.own),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ran\n", done.stderr
    assert str(tool / "share") not in line


def test_a_service_s_home_below_opt_is_not_shown(
    machine: Machine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "SYSTEM_FOLDERS", (*isolation.SYSTEM_FOLDERS, str(place)))
    home = place / "home"
    (home / "app" / "bin").mkdir(parents=True)
    (home / "secret").write_text("secret")
    program = home / "app" / "bin" / "tool"
    program.write_text(f"#!/bin/sh\nls -A {home} {machine.data}\n")
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    line = isolation.prepare_isolated_command_line([str(program)], machine.own, Isolation())
    done = subprocess.run(
        line,
        env=isolation.build_base_process_environment(machine.own),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [f"{machine.data}:", "mcp", f"{home}:", "app"], done.stderr


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, **more: None if name == "bwrap" else usual(name, **more)
    )
    monkeypatch.setattr(isolation, "_last_probe", None)


@pytest.mark.usefixtures("without_bubblewrap")
def test_where_nothing_isolates_programs_none_is_started(machine: Machine, settings: Any) -> None:
    settings.DISCOVERY_COMMANDS = [sys.executable]
    started = machine.own / "started"
    source = f"open({str(started)!r}, 'w')"
    for start in (
        lambda: isolation.prepare_isolated_command_line(
            [sys.executable, "-c", source], machine.own, Isolation()
        ),
        lambda: discovery.start_server_and_list_tools(sys.executable, ["-c", source], Isolation()),
    ):
        with pytest.raises(IsolationUnavailable, match=r"bubblewrap is not installed.*`signalbox mcp`"):
            start()
    assert not started.exists()
    assert isolation.prepare_isolated_command_line(["x"], machine.own, Isolation(is_off=True)) == ["x"]


@pytest.mark.usefixtures("without_bubblewrap")
def test_bubblewrap_that_does_not_work_is_not_believed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = place / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    broken.chmod(0o755)
    usual = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, **more: str(broken) if name == "bwrap" else usual(name, **more)
    )
    with pytest.raises(
        IsolationUnavailable, match="does not work here: No permissions to create new namespace"
    ):
        isolation.require_isolation_mechanism()
    broken.unlink()  # it is asked once, not for each call
    with pytest.raises(IsolationUnavailable, match="No permissions"):
        isolation.require_isolation_mechanism()
