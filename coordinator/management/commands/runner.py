"""`manage.py runner`: the runner of this machine, with a key of its own; from then on it is `signalbox runner`."""

from __future__ import annotations

import os
import socket
import sys
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import OperationalError, ProgrammingError
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.errors import Conflict
from coordinator.identity.actors import system_actor
from coordinator.lib import installation, listening_sockets

KEY_FILE = "runner_key"
# What the runner needs of our environment beside what agents are passed: not where the database is, and no secret.
OURS = "SIGNALBOX_"
HANDED_ON = {"SIGNALBOX_URL", "SIGNALBOX_RUNNER_CONFIG"}


class Command(BaseCommand):
    """Makes a key where there is none, and becomes the runner. Its flags are those of `signalbox runner`."""

    help = "Carry out runs on this machine with the agents that it has. Its key is made and kept in the data folder."

    def run_from_argv(self, argv: list[str]) -> NoReturn:
        """Become the runner, with the flags as they were typed."""
        argument_list = argv[2:]
        if not {"-h", "--help", "--list"} & set(argument_list):
            try:
                key = get_or_create_runner_key_file(timezone.now())
                argument_list = [*argument_list, "--key-file", str(key), "--private", str(settings.DATA_DIR)]
            except (OperationalError, ProgrammingError) as problem:
                first_line = str(problem).strip().splitlines()[0]
                sys.exit(f"The runner cannot make a key ({first_line}). Start `signalbox serve` first.")
        root = str(installation.CODE)
        passed_environment = {
            name: value for name, value in os.environ.items() if is_variable_passed_to_runner(name)
        }
        passed_environment.setdefault("SIGNALBOX_URL", local_server_url())
        passed_environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [root, passed_environment.get("PYTHONPATH")])
        )
        sys.stdout.flush()
        # -P: a project's own modules must not be taken for the runner's.
        command = [sys.executable, "-P", "-m", "coordinator.runner.main", *argument_list]
        os.execve(sys.executable, command, passed_environment)  # noqa: S606 - this program


def local_server_url() -> str:
    """Return where the server of these settings answers on this machine."""
    host = settings.BIND_HOST
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared
        host = "127.0.0.1"
    return f"http://{listening_sockets.join_host_port(host, settings.BIND_PORT)}"


def get_or_create_runner_key_file(now: datetime) -> Path:
    """Return the file with the runner's key; makes file and key where there is no valid one."""
    path = Path(settings.DATA_DIR) / KEY_FILE
    if path.exists() and keys.find_api_key_id(path.read_text().strip()) is not None:
        return path
    name = f"runner on {socket.gethostname()}"
    try:
        _row, raw = keys.issue_api_key(
            name=name, scopes=["runner"], actor=system_actor("command-line"), now=now
        )
    except Conflict:  # one that was lost or revoked; its name is not used again
        name = f"{name} {now:%Y-%m-%d %H:%M:%S}"
        _row, raw = keys.issue_api_key(
            name=name, scopes=["runner"], actor=system_actor("command-line"), now=now
        )
    aside = path.with_name(f"{KEY_FILE}.{os.getpid()}")
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{raw}\n")
    aside.replace(path)
    return path


def is_variable_passed_to_runner(name: str) -> bool:
    return name in HANDED_ON or not (name.startswith(OURS) or name in {"DATABASE_URL", "PG_URL"})
