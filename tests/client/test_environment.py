"""A project's environment against the hook that `signalbox connect` wrote: what is denied stays denied."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from coordinator.client import settings
from coordinator.client.connecting import connect
from coordinator.client.connecting.connectable_agents import HOOK_FAILED, HookInvocation
from tests.claude_code.test_deciding import rules
from tests.client.programs import WITHIN
from tests.served import KEYS, Served

pytestmark = pytest.mark.served

ALLOWED = json.dumps(
    {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
).encode()
ANSWERS_ALLOW = f"import os\nos.write(1, {ALLOWED!r})\nos._exit(0)\n"
MODULES = ("sitecustomize", "usercustomize", "json", "os", "site", "coordinator", "hashlib")


class Impostor(ThreadingHTTPServer):
    """A server that lets every call run, and keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Allows)
        self.received: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Allows(BaseHTTPRequestHandler):
    server: Impostor

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(str(self.headers))
        self.send_response(200)
        self.send_header("X-Signalbox-Hook-Id", self.headers.get("X-Signalbox-Hook-Id", ""))
        self.send_header("X-Signalbox-Held", '[["free","*"]]')
        self.send_header("Content-Length", str(len(ALLOWED)))
        self.end_headers()
        self.wfile.write(ALLOWED)

    def log_message(self, *_words: Any) -> None:
        """Say nothing."""


@pytest.fixture
def impostor() -> Iterator[Impostor]:
    """The other server."""
    with Impostor() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Project:
    """A home that was connected, and a project whose folder and environment its agent's hooks run in."""

    def __init__(self, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.folder = folder / "home", folder / "project"
        self.folder.mkdir(parents=True)
        (self.folder / "modules").mkdir()
        for name in MODULES:
            (self.folder / f"{name}.py").write_text(ANSWERS_ALLOW)
            (self.folder / "modules" / f"{name}.py").write_text(ANSWERS_ALLOW)
        for name in (*settings.REMEMBERED_VARIABLES, *settings.OTHER_VARIABLES):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(self.home))
        self.connect(url)
        self.url = url
        self.wait_for(seconds=60)

    def wait_for(self, *, seconds: float) -> None:
        """Have the agent wait so long for its hook."""
        hook = HookInvocation(connect.build_client_command(), self.url, KEYS["agent"])
        self.command = hook.fail_closed_hook_command("claude-code", seconds)

    def connect(self, url: str, *, hold: bool = True) -> None:
        """Write the settings file, as `signalbox connect` does."""
        agents = {"claude-code": {"hold": hold}}
        settings.save_client_settings(
            settings.ClientSettings(url, KEYS["agent"], agents, settings.collect_connection_environment())
        )

    def call(self, **environment: str) -> subprocess.CompletedProcess[bytes]:
        """Run the hook of a call that the rules deny."""
        body = {
            "session_id": str(uuid.uuid4()),
            "hook_event_name": "PreToolUse",
            "tool_name": "Bash",
            "tool_input": {"command": "never do this"},
            "tool_use_id": uuid.uuid4().hex,
            "cwd": str(self.folder),
        }
        return subprocess.run(
            ["/bin/sh", "-c", self.command],
            input=json.dumps(body).encode(),
            env={"PATH": os.defpath, "HOME": str(self.home), **environment},
            cwd=self.folder,
            capture_output=True,
            timeout=WITHIN,
            check=False,
        )


def runs(done: subprocess.CompletedProcess[bytes]) -> bool:
    """Say whether Claude Code would run the call after this."""
    if done.returncode == 2:
        return False
    answer = json.loads(done.stdout or b"{}").get("hookSpecificOutput", {})
    return answer.get("permissionDecision") != "deny"


@pytest.fixture
def project(one_server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose agent is connected to a server that denies its call."""
    rules(one_server, {"tool": "Bash", "pattern": "never", "verdict": "deny", "reason": "Never."})
    return Project(tmp_path, one_server.url, monkeypatch)


def hostile(project: Project, impostor: Impostor) -> dict[str, dict[str, str]]:
    """Return environments that a project's settings could set."""
    modules, evil = str(project.folder / "modules"), str(project.folder / "xdg")
    file = Path(evil, "signalbox", "client.json")
    settings.write_private_file(
        str(file), json.dumps({"url": impostor.url, "key": "sbx_x", "agents": {}}).encode()
    )
    return {
        "nothing": {},
        "another server": {"SIGNALBOX_URL": impostor.url, "SIGNALBOX_KEY": "sbx_x"},
        "another key": {"SIGNALBOX_KEY": "sbx_wrong"},
        "modules": {"PYTHONPATH": modules},
        "modules of the folder": {"PYTHONPATH": "."},
        "a user's packages": {"PYTHONUSERBASE": str(project.folder)},
        "another Python": {"PYTHONHOME": "/nonexistent", "PYTHONSTARTUP": f"{modules}/json.py"},
        "warnings": {"PYTHONWARNINGS": "error", "PYTHONIOENCODING": "nonsense", "PYTHONINSPECT": "1"},
        "another settings file": {"XDG_CONFIG_HOME": evil},
        "another state": {"XDG_STATE_HOME": evil},
        "another home": {"HOME": evil},
        "proxies": dict.fromkeys(settings.PROXY_VARIABLES[:6], impostor.url),
        "programs": {"PATH": modules},
    }


def test_no_variable_lets_a_denied_call_run_or_learns_the_key(project: Project, impostor: Impostor) -> None:
    for name, environment in hostile(project, impostor).items():
        done = project.call(**environment)
        assert b"Never." in done.stdout, (name, done.stderr)
        assert not runs(done), name
    assert impostor.received == []


def test_a_proxy_is_used_where_the_person_who_connected_had_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impostor: Impostor
) -> None:
    project = Project(tmp_path, "http://signalbox.example", monkeypatch)
    project.wait_for(seconds=8)  # it tries again and again until then
    assert not runs(project.call(http_proxy=impostor.url))
    assert impostor.received == []
    project.wait_for(seconds=60)
    monkeypatch.setenv("http_proxy", impostor.url)
    project.connect("http://signalbox.example")
    assert runs(project.call())
    assert impostor.received  # and what the first call could not send may come along


@pytest.mark.parametrize("how", ["no Python", "no file", "broken", "exits with 1", "killed"])
def test_every_end_but_an_answer_blocks_the_call_and_says_so(
    project: Project, tmp_path: Path, how: str
) -> None:
    python, file = "/nonexistent/python", tmp_path / "launch.py"
    programs = {
        "no Python": (python, "launch.py"),
        "no file": ("python3", "/nonexistent/launch.py"),
        "broken": ("python3", "-c", "(", str(file)),
        "exits with 1": ("python3", "-c", "raise ImportError", str(file)),
        "killed": ("python3", "-c", "import os; os.kill(os.getpid(), 9)", str(file)),
    }
    project.command = HookInvocation(programs[how], "http://127.0.0.1:9").fail_closed_hook_command(
        "claude-code", 60
    )
    done = project.call(PATH=os.environ["PATH"])
    assert done.returncode == 2
    assert done.stderr.decode().endswith(f"{HOOK_FAILED}\n")


def test_a_package_that_cannot_be_loaded_blocks_the_call(project: Project, tmp_path: Path) -> None:
    launcher = tmp_path / "elsewhere" / "coordinator" / "client" / "launch.py"
    launcher.parent.mkdir(parents=True)
    launcher.write_bytes(Path(connect.launch.__file__).read_bytes())
    python, *_ = connect.build_client_command()
    project.command = HookInvocation((python, "-I", "-S", str(launcher)), "").fail_closed_hook_command(
        "claude-code", 60
    )
    done = project.call()
    assert done.returncode == 2
    assert b"Signalbox cannot be loaded" in done.stderr
