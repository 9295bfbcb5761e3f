"""What tests/forked.py starts is what `manage.py` would be: settings, files, signals, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests import forked
from tests.patience import PATIENCE
from tests.processes import until_gone
from tests.served import ROOT, Template

SHOWS = """
import gc, json, logging, os, signal, sys, threading
from pathlib import Path
from django.conf import settings
from django.core.files.storage import storages
from django.db import connections
from django.template import engines
status = Path("/proc/self/status").read_text().splitlines()
files = [one for one in map("/proc/self/fd/{}".format, os.listdir("/proc/self/fd")) if os.path.lexists(one)]
print(json.dumps({
    "database": repr(connections["default"].settings_dict),  # first: it completes the settings
    "settings": {name: repr(getattr(settings, name)) for name in dir(settings) if name.isupper()},
    "connected": [one.alias for one in connections.all() if one.connection],
    "static": [storages["staticfiles"].location, str(engines.all()[0].dirs)],
    "logs": [logging.root.level, repr(logging.root.handlers[0].formatter), sys.stderr.fileno()],
    "signals": [line for line in status if line.startswith(("SigP", "SigB", "SigI", "SigC", "Shd"))],
    "handlers": repr([signal.getsignal(number) for number in sorted(signal.valid_signals())][:30]),
    "threads": [line for line in status if line.startswith("Threads")] + [threading.current_thread().name],
    "process": [os.getcwd(), sys.argv, sys.orig_argv, os.umask(0), os.getpgid(0), gc.isenabled(), gc.get_threshold()],
    "files": len(files),
    "environment": dict(os.environ),
}, sort_keys=True))
"""
SHELL = ("shell", "--no-imports", "-c")
SLEEPS = (*SHELL, "import time; print('up', flush=True); time.sleep(600)")
# Of our own modules: DATABASES says which engine, BASE_DIR is always the same, forked.CAPTURED names the others.
TELLS_WHAT_IS_READ = """
import sys
from django.conf import LazySettings
from tests import forked
def read(self, name):
    by = sys._getframe(1).f_globals["__name__"]
    if name.isupper() and by.split(".")[0] in {"coordinator", "dashboard"}:
        print(name)
    return object.__getattribute__(self, name)
LazySettings.__getattribute__ = read
forked.load()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[forked.ForkServer]:
    server = forked.ForkServer()
    yield server
    server.process.kill()
    server.process.wait()


def both(server: forked.ForkServer, *words: str, env: Mapping[str, str]) -> list[tuple[int, str, str]]:
    """Return status, output and errors of a forked start and of a real one."""
    ends = []
    for start in ("forked", "really"):
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            if start == "forked":
                code = server.start(words, env, out, err).wait(PATIENCE)
            else:
                command = [sys.executable, "manage.py", *words]
                code = subprocess.run(
                    command, cwd=ROOT, env=env, stdout=out, stderr=err, check=False
                ).returncode
            out.seek(0)
            err.seek(0)
            ends.append((code, out.read(), err.read()))
    return ends


def test_a_forked_program_is_as_one_that_was_started(server: forked.ForkServer, tmp_path: Path) -> None:
    env = Template.environment(tmp_path / "data", "nowhere") | {
        "SIGNALBOX_BIND": "127.0.0.1:9123",
        "SIGNALBOX_TIME_ZONE": "Asia/Tokyo",
        "SIGNALBOX_RUNNER_POLL_TIMEOUT": "7.5",
        "SIGNALBOX_LOG_LEVEL": "ERROR",
        "SIGNALBOX_LOG_FORMAT": "json",
    }
    assert server.suits(env)
    (code, told, _), (really_code, really_told, why) = both(server, *SHELL, SHOWS, env=env)
    assert code == really_code == 0, why
    as_forked, as_started = json.loads(told), json.loads(really_told)
    if "LC_CTYPE" not in env:  # Python sets it for itself where there is no locale (PEP 538)
        as_started["environment"].pop("LC_CTYPE", None)
    assert as_forked["settings"]["LOCAL_ZONE"] == "zoneinfo.ZoneInfo(key='Asia/Tokyo')"
    for what, value in as_started.items():
        assert re.sub("0x[0-9a-f]+", "", repr(as_forked[what])) == re.sub("0x[0-9a-f]+", "", repr(value)), (
            what
        )


@pytest.mark.parametrize("words", [["apikey", "list"], ["serve"], ["nonsense"], ["apikey"]])
def test_it_fails_alike(server: forked.ForkServer, tmp_path: Path, words: list[str]) -> None:
    env = Template.environment(tmp_path, "nowhere") | {"SIGNALBOX_LOG_FORMAT": "prose"}
    as_forked, as_started = both(server, *words, env=env)
    assert as_forked == as_started
    assert as_forked[0] == 1


def test_it_is_signalled_waited_for_and_ends_with_the_fork_server(tmp_path: Path) -> None:
    server = forked.ForkServer()
    env = Template.environment(tmp_path / "data", "nowhere")
    with tempfile.TemporaryFile() as out:
        first, second, third = (server.start(SLEEPS, env, out, out) for _ in range(3))
        assert first.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(0.01)
        first.send_signal(signal.SIGTERM)
        assert (first.wait(PATIENCE), first.poll()) == (-signal.SIGTERM, -signal.SIGTERM)
        second.kill()
        assert second.wait(PATIENCE) == -signal.SIGKILL
        server._link.close()  # as it is when the tests' process is killed
        assert server.process.wait(PATIENCE) == 0
        assert third.wait(PATIENCE) == -signal.SIGKILL
        until_gone(third.pid)


def test_no_setting_is_read_as_modules_are_loaded_but_those_that_are_known() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TELLS_WHAT_IS_READ], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == {
        "BASE_DIR",
        "DATABASES",
        "DATA_UPLOAD_MAX_MEMORY_SIZE",
    }
    server = object.__new__(forked.ForkServer)
    server.env = {"PATH": "/bin", "DJANGO_ALLOW_ASYNC_UNSAFE": "1"}  # as a shared server is started
    assert server.suits({"PATH": "/bin", "SIGNALBOX_DATA_DIR": "/x"})
    assert not server.suits({"PATH": "/bin", "SIGNALBOX_ATTACHMENT_MAX_MIB": "1"})
    assert server.suits({"PATH": "/bin", "SIGNALBOX_LIFECYCLE_INTERVAL": "1"})
    assert not server.suits({"PATH": "/x"})
