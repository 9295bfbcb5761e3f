"""A worker that is told to stop while it loads the application stops, once that is loaded."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.patience import PATIENCE

# A worker on a socket of its own. It is told twice where it would lose it: by the server's handler, which it has until
# it has its own, and while it loads.
PROGRAM = """
import os, queue, socket, sys, types
from gunicorn.config import Config
from gunicorn.glogging import Logger
from coordinator.edge.http.worker import Worker

when, number = sys.argv[1], int(sys.argv[2])

class Application:
    async def __call__(self, scope, receive, send):
        assert scope["type"] == "lifespan"
        for word in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{word}.complete"})
            print(word)

    def end_waiting_polls_and_streams(self):
        pass

class Loading:
    def wsgi(self):
        if when == "loading":
            os.kill(os.getpid(), number)
        return Application()

already = queue.SimpleQueue()
if when == "forked":
    already.put(number)
settings = Config()
listening = types.SimpleNamespace(sock=socket.create_server(("127.0.0.1", 0)))
listening.fileno, listening.close = listening.sock.fileno, listening.sock.close
worker = Worker(1, os.getppid(), [listening], Loading(), 30, settings, Logger(settings))
worker.install_early_signal_recorder(already)
worker.init_process()
"""


@pytest.mark.parametrize("when", ["forked", "loading"])
def test_it_begins_and_ends_in_order(when: str) -> None:
    command = [sys.executable, "-c", PROGRAM, when, str(int(signal.SIGTERM))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.split() == ["startup", "shutdown"]
