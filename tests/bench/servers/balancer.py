"""nginx or HAProxy before the servers, with the examples in `.deploy/`; one can take the other's place."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.served import READY_WITHIN, ROOT, Served

KINDS = ("nginx", "haproxy")
EXAMPLES = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}


class Balancer:
    """The one door to all servers, at one port whichever program stands there."""

    def __init__(self, kind: str, folder: Path, port: int, servers: list[Served]) -> None:
        self.kind, self.folder, self.port, self.servers = kind, folder, port, servers
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it lets somebody in."""
        place = self.folder / EXAMPLES[self.kind]
        place.write_text(self._settings())
        words = ["nginx", "-c", str(place)] if self.kind == "nginx" else ["haproxy", "-db", "-f", str(place)]
        path = f"{os.environ['PATH']}:/usr/sbin"
        with (self.folder / f"{self.kind}.out").open("ab") as out:
            self.process = subprocess.Popen(words, env=os.environ | {"PATH": path}, stdout=out, stderr=out)
        until = time.monotonic() + READY_WITHIN
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
                return
            time.sleep(0.02)
        raise AssertionError((self.folder / f"{self.kind}.out").read_text())

    def switch(self) -> None:
        """Put the other program in its place, at once: lines that are open break."""
        self.stop()
        self.kind = KINDS[1 - KINDS.index(self.kind)]
        self.start()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None

    def _settings(self) -> str:
        """Return the example, at our port and with these servers."""
        example = (ROOT / ".deploy" / EXAMPLES[self.kind]).read_text()
        lines = []
        for line in (
            example.replace("8080;", f"127.0.0.1:{self.port};")
            .replace(":8080", f"127.0.0.1:{self.port}")
            .splitlines()
        ):
            if "one:8765" in line or "server one" in line:
                for nth, server in enumerate(self.servers):
                    lines.append(
                        line.replace("one:8765", f"127.0.0.1:{server.port}")
                        .replace("server one", f"server s{nth}")
                        .replace("signalbox/one", f"signalbox/s{nth}")
                    )
            elif "two:8765" not in line and "server two" not in line:
                lines.append(line)
        text = "\n".join(lines) + "\n"
        if self.kind == "haproxy":
            return text
        log = f"{self.folder}/nginx.log"
        text = text.replace("http {\n", f"http {{\n    access_log off;\n    error_log {log};\n", 1)
        return f"daemon off;\npid {self.folder}/nginx.pid;\nerror_log {log};\n{text}"
