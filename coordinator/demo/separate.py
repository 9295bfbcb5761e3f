"""The demo as an instance of its own: another data folder and port, both gone when it ends.

Rows of the demo cannot be taken out of a database again: the audit log only grows, and sums of usage, the search index
and the feed have taken them in. So nobody has to fill a database that they mean to keep.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coordinator.demo.live import ServerUnreachable, require_reachable_server
from coordinator.lib.installation import management_command_argv_prefix
from coordinator.lib.listening_sockets import join_host_port

HOST = "127.0.0.1"
START_TIMEOUT_SECONDS = 120.0
LOOK_EVERY_SECONDS = 0.25
STOP_TIMEOUT_SECONDS = 30.0

WriteLine = Callable[[str], object]


def run_separate_demo(port: int, *, seed: int, days: int, say: WriteLine) -> int:
    """Run a server with the demo's data and its fleet until Ctrl-C, then delete both; return the exit code."""
    for ending in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # a shell starts what it puts into the background without the first
        signal.signal(ending, raise_keyboard_interrupt)
    with tempfile.TemporaryDirectory(prefix="signalbox-demo-") as folder:
        environment = build_demo_environment(folder, port)
        fill = [*management_command_argv_prefix(), "demo", "--seed", str(seed), "--days", str(days)]
        if exit_code := subprocess.run(fill, env=environment, check=False).returncode:  # noqa: S603 - ours
            return exit_code
        say(f"A server of its own runs now, in {folder}. Ctrl-C ends it and deletes its data.")
        try:
            with run_demo_command_during_block(["serve"], environment) as server:
                url = f"http://{join_host_port(HOST, port)}"
                wait_until_demo_server_reachable(server, url)
                with run_demo_command_during_block(["demo", "--live", "--url", url], environment):
                    return server.wait()
        except KeyboardInterrupt:
            return 0


def raise_keyboard_interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def build_demo_environment(folder: str, port: int) -> dict[str, str]:
    """Return the environment without settings of the installation that this was started in: not its database either."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    own.pop("DATABASE_URL", None)
    return own | {"SIGNALBOX_DATA_DIR": folder, "SIGNALBOX_BIND": join_host_port(HOST, port)}


@contextmanager
def run_demo_command_during_block(
    arguments: list[str], environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of our commands for as long as the block; Ctrl-C in a terminal reaches it too."""
    command = [*management_command_argv_prefix(), *arguments]
    with subprocess.Popen(command, env=environment) as process:  # noqa: S603 - ours
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until_demo_server_reachable(server: subprocess.Popen[bytes], url: str) -> None:
    """Wait until the server answers. Raises ServerUnreachable where it ended, or took too long."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        try:
            require_reachable_server(url)
        except ServerUnreachable:
            if server.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY_SECONDS)
        else:
            return
