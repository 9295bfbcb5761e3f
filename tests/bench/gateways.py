"""MCP gateways to measure beside ours, each as the package index gives it, in a virtual environment of its own."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.mcp_callers import Way
from tests.bench.wire import Target
from tests.served import free_port

INSTALLED_WITHIN, READY_WITHIN = 600, 90  # seconds
WORKERS = "2"
PROXY = """
import os
from fastmcp.server import create_proxy

app = create_proxy(os.environ["UPSTREAM"]).http_app(stateless_http=True)
"""


class Unusable(Exception):
    """It cannot be measured here; the text says why."""


@contextlib.contextmanager
def contextforge(folder: Path, upstream: str) -> Iterator[Way]:
    """ContextForge on SQLite, without its limit of 100 calls a minute. Raises Unusable."""
    name, version = installed(folder, "mcp-contextforge-gateway")
    secret, password = secrets.token_urlsafe(48), f"{secrets.token_urlsafe(24)}-9!"
    env = {
        "DATABASE_URL": f"sqlite:///{folder}/mcp.db",
        "JWT_SECRET_KEY": secret,
        "AUTH_ENCRYPTION_SECRET": secret,
        "BASIC_AUTH_PASSWORD": password,
        "PLATFORM_ADMIN_EMAIL": "admin@example.com",
        "PLATFORM_ADMIN_PASSWORD": password,
        "DEFAULT_USER_PASSWORD": password,
        "SSRF_ALLOW_LOCALHOST": "true",
        "RATE_LIMITING_ENABLED": "false",
        "LOG_LEVEL": "ERROR",
    }
    words = [str(folder / "bin/mcpgateway"), "--host", "127.0.0.1", "--workers", WORKERS]
    with started(folder, words, env) as (pid, port):
        url = f"http://127.0.0.1:{port}"
        script = ["-m", "mcpgateway.utils.create_jwt_token", "--username", "admin@example.com"]
        key = run(folder, *script, "--exp", "600", "--secret", secret, env=env).split()[-1]
        asked(url + "/health", None, READY_WITHIN)
        about: Any = {"name": "echo", "url": upstream, "transport": "STREAMABLEHTTP"}
        asked(url + "/gateways", key, 30, about)
        tool = asked(url + "/tools", key, 30)[0]
        about = {"server": {"name": "bench", "associated_tools": [tool["id"]]}}
        server = asked(url + "/servers", key, 30, about)["id"]
        yield Way(
            f"{name} {version}", Target(url, key), f"/servers/{server}/mcp", tool=tool["name"], root=pid
        )


@contextlib.contextmanager
def fastmcp(folder: Path, upstream: str) -> Iterator[Way]:
    """FastMCP's proxy in two processes of uvicorn. Raises Unusable."""
    name, version = installed(folder, "fastmcp")
    (folder / "proxy.py").write_text(PROXY)
    words = [str(folder / "bin/uvicorn"), "proxy:app", "--app-dir", str(folder), "--workers", WORKERS]
    with started(folder, [*words, "--log-level", "error"], {"UPSTREAM": upstream}) as (pid, port):
        until_open(port)
        yield Way(f"{name} {version} (proxy)", Target(f"http://127.0.0.1:{port}"), "/mcp", root=pid)


def installed(folder: Path, package: str) -> tuple[str, str]:
    """Install a package in a new virtual environment; return its name and version. Raises Unusable."""
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=INSTALLED_WITHIN)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", package]
        subprocess.run(pip, check=True, timeout=INSTALLED_WITHIN, capture_output=True, text=True)
    except subprocess.CalledProcessError as problem:
        words = (problem.stderr or "pip failed").strip().splitlines()[-1:]
        raise Unusable(f"{package} cannot be installed: {' '.join(words)}") from None
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Unusable(f"{package} cannot be installed: {problem}") from None
    script = f"from importlib.metadata import version; print(version({package!r}))"
    return package, run(folder, "-c", script).strip()


def run(folder: Path, *words: str, env: dict[str, str] | None = None) -> str:
    """Run the virtual environment's Python. Raises Unusable."""
    done = subprocess.run(
        [folder / "bin/python", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=plain_env(folder) | (env or {}),
    )
    if done.returncode:
        raise Unusable("\n".join(done.stderr.strip().splitlines()[-3:]))
    return done.stdout


def plain_env(folder: Path) -> dict[str, str]:
    """Return an environment in which nothing of ours is said."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder)}


@contextlib.contextmanager
def started(folder: Path, words: list[str], env: dict[str, str]) -> Iterator[tuple[int, int]]:
    """Run a program on a free port for the length of the block; give its process id and its port."""
    port = free_port()
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*words, "--port", str(port)],
            cwd=folder,
            env=plain_env(folder) | env,
            stdout=log,
            stderr=log,
        )
    try:
        yield process.pid, port
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def asked(url: str, key: str | None, within: float, value: Any = None) -> Any:
    """Ask until there is an answer; return it. Raises Unusable."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    body = None if value is None else json.dumps(value).encode()
    deadline = time.monotonic() + within
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
                return json.load(answer)
        except (OSError, ValueError) as problem:
            if time.monotonic() > deadline or value is not None:
                raise Unusable(f"{url} does not answer: {problem}") from None
            time.sleep(0.2)


def until_open(port: int) -> None:
    """Wait until somebody listens. Raises Unusable."""
    deadline = time.monotonic() + READY_WITHIN
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError as problem:
            if time.monotonic() > deadline:
                raise Unusable(f"it does not listen after {READY_WITHIN} s: {problem}") from None
            time.sleep(0.1)
