"""What lies in .deploy/ for who runs several servers names settings that there are, and programs can read it."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import yaml

from tests.patience import PATIENCE
from tests.served import ROOT, free_port

FOLDER = ROOT / ".deploy"
SERVERS = re.compile(r"\b(?:one|two):8765")


def test_the_settings_that_are_named_exist() -> None:
    known = set(re.findall(r"SIGNALBOX_[A-Z0-9_]+", (ROOT / "coordinator/settings.py").read_text()))
    for path in filter(Path.is_file, FOLDER.iterdir()):
        assert set(re.findall(r"SIGNALBOX_[A-Z0-9_]+", path.read_text())) <= known, path


def test_the_container_holds_what_the_program_needs() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == {
        ".deploy/hatch_build.py", "pyproject.toml", "README.md", "LICENSE", ".docs", "coordinator", "dashboard",
        "templates", "static",
    }  # fmt: skip
    assert all((ROOT / name).exists() for name in kept)


def test_the_containers_proxy_knows_every_server_without_asking_anybody() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    addresses = {
        f"{name}:{service['networks']['default']['ipv4_address']}"
        for name, service in services.items()
        if service.get("image") == "signalbox"
    }
    assert set(services["proxy"]["extra_hosts"]) == addresses
    named = set(re.findall(r"server (\w+):8765", (FOLDER / "nginx.conf").read_text()))
    assert named == {address.partition(":")[0] for address in addresses}


def check_compose_file(text: str, folder: Path) -> str:
    """Return what docker-compose has against a file; nothing where it can use it."""
    file = folder / "compose.yaml"
    file.write_text(text.replace("name: signalbox\n", "", 1))  # newer than Debian 12's docker-compose
    environment = dict.fromkeys(re.findall(r"\$\{(\w+):\?", text), "secret")
    command = [found_program("docker-compose"), "-f", file, "config", "--quiet"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0) == (not done.stderr), done.stderr
    return done.stderr


def test_docker_compose_can_use_the_file(tmp_path: Path) -> None:
    text = (FOLDER / "compose.yaml").read_text()
    assert check_compose_file(text, tmp_path) == ""
    assert "'restat'" in check_compose_file(text.replace("restart:", "restat:", 1), tmp_path)


def found_program(name: str) -> str:
    """Return where a program is; skip the test where it is not installed."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_haproxy_starts_without_a_server_whose_name_is_not_known(tmp_path: Path) -> None:
    program, copy = found_program("haproxy"), tmp_path / "haproxy.cfg"
    copy.write_text((FOLDER / "haproxy.cfg").read_text().replace("one:8765", "one.invalid:8765"))
    done = subprocess.run([program, "-c", "-q", "-f", str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Told(BaseHTTPRequestHandler):
    """A server that answers with the scheme it is told of."""

    def do_GET(self) -> None:
        said = self.headers["X-Forwarded-Proto"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def nginx(folder: Path, gateway: str) -> Iterator[str]:
    """Run nginx by its example before a server of ours, on a machine of that address; yield its address."""
    port, program = free_port(), found_program("nginx")
    with ThreadingHTTPServer(("127.0.0.1", 0), Told) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        text = SERVERS.sub(f"127.0.0.1:{server.server_port}", (FOLDER / "nginx.conf").read_text())
        text = text.replace("172.28.65.1 ", f"{gateway} ").replace("8080;", f"127.0.0.1:{port};")
        text = text.replace("http {\n", f"http {{\n    access_log off;\n    error_log {folder}/log;\n", 1)
        copy = folder / "nginx.conf"
        copy.write_text(f"daemon off;\npid {folder}/pid;\nerror_log {folder}/log;\n{text}")
        with subprocess.Popen([program, "-c", str(copy)], stderr=subprocess.DEVNULL) as process:
            wait_for_port(port)
            yield f"http://127.0.0.1:{port}"
            process.terminate()
        server.shutdown()


def wait_for_port(port: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return
    raise AssertionError("nginx does not listen")


@pytest.mark.parametrize(("gateway", "https"), [("127.0.0.1", "https"), ("192.0.2.1", "http")])
def test_a_proxy_of_the_host_alone_says_that_tls_ended_there(
    gateway: str, https: str, tmp_path: Path
) -> None:
    with nginx(tmp_path, gateway) as address:
        assert httpx.get(address, headers={"X-Forwarded-Proto": "https"}).text == https
        assert httpx.get(address, headers={"X-Forwarded-Proto": "gopher"}).text == "http"
        assert httpx.get(address).text == "http"


@pytest.mark.parametrize(
    ("program", "file", "check"),
    [("nginx", "nginx.conf", ["-t", "-q", "-c"]), ("haproxy", "haproxy.cfg", ["-c", "-q", "-f"])],
)
def test_the_proxies_can_read_their_examples(
    program: str, file: str, check: list[str], tmp_path: Path
) -> None:
    found, copy = found_program(program), tmp_path / file
    copy.write_text(SERVERS.sub("127.0.0.1:8765", (FOLDER / file).read_text()))
    done = subprocess.run([found, *check, str(copy)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
