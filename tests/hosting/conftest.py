"""The host of stdio servers in this process, on a Unix socket, with servers of tests behind it."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from coordinator.mcp.hosting import backend
from coordinator.mcp.hosting.app import StdioHost
from coordinator.mcp.hosting.backend import ProcessState
from coordinator.mcp.hosting.pool import BackendPool
from coordinator.mcp.hosting.stdio_configuration import StdioConfiguration
from coordinator.mcp.isolation.process_isolation import Isolation
from tests.patience import PATIENCE

SERVER = str(Path(__file__).with_name("stdio_server.py"))


@dataclass
class Hosted:
    """The running host: its servers' configurations, which tests change, and what it told of their processes."""

    folder: Path
    configurations: dict[str, StdioConfiguration] = field(default_factory=dict)
    told: list[tuple[str, str, ProcessState]] = field(default_factory=list)
    pool: BackendPool | None = None
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def socket(self) -> str:
        return str(self.folder / "socket")

    def add(
        self,
        name: str,
        *command: str,
        shared: bool = True,
        **environment: str,
    ) -> None:
        words = command or (sys.executable, SERVER)
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.configurations[name] = StdioConfiguration(name, words, environment, shared, folder, Isolation())

    async def configure(self, server_id: str) -> StdioConfiguration:
        return replace(self.configurations[server_id])

    async def tell(self, server_id: str, caller: str, state: ProcessState) -> None:
        self.told.append((server_id, caller, state))

    def pid(self, server_id: str = "s") -> int:
        """Return the process that was started for a server last."""
        pids = [state.pid for name, _, state in self.told if name == server_id and state.pid is not None]
        return pids[-1]

    def run(self, work: Any) -> Any:
        """Run a coroutine in the host's loop and return what it returns."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)


class Client:
    """One client of one server: it begins, asks, and reads answers as JSON or as a stream."""

    def __init__(self, hosted: Hosted, server: str = "s", caller: str = "") -> None:
        transport = httpx.HTTPTransport(uds=hosted.socket, verify=False)
        headers = {"x-signalbox-caller": caller} if caller else {}
        self.http = httpx.Client(
            transport=transport, base_url="http://host", headers=headers, timeout=PATIENCE
        )
        self.path = f"/servers/{server}/mcp"
        self.session = ""

    def post(self, raw: str | bytes, **headers: str) -> httpx.Response:
        told = {"mcp-session-id": self.session, **headers} if self.session else headers
        return self.http.post(self.path, content=raw, headers=told)

    def begin(self, capabilities: dict[str, Any] | None = None) -> httpx.Response:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities or {},
            "clientInfo": {"name": "t"},
        }
        answer = self.post(message("initialize", 0, **params))
        self.session = answer.headers.get("mcp-session-id", "")
        self.post(message("notifications/initialized"))
        return answer

    def call(self, tool: str, number: Any = 1, **params: Any) -> list[dict[str, Any]]:
        """Return the messages that answer a call."""
        return messages(self.post(message("tools/call", number, name=tool, **params)))

    def say(self, tool: str, number: Any = 1, **params: Any) -> str:
        """Return the text of a call's answer."""
        return str(self.call(tool, number, **params)[-1]["result"]["content"][0]["text"])


def message(method: str, number: Any = None, **params: Any) -> str:
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(body if number is None else body | {"id": number})


def messages(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"] == "application/json":
        return [answer.json()]
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


@pytest.fixture
def hosted(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    monkeypatch.setattr(backend, "GREETS_WITHIN", 10.0)
    found = Hosted(tmp_path_factory.mktemp("h"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(found.socket)
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=_serve, args=(found, listener, ready, done))
    thread.start()
    assert ready.wait(PATIENCE)
    yield found
    assert found.loop is not None
    found.loop.call_soon_threadsafe(done.set)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def _serve(hosted: Hosted, listener: socket.socket, ready: threading.Event, done: threading.Event) -> None:
    async def serve() -> None:
        hosted.loop = asyncio.get_running_loop()
        pool = hosted.pool = BackendPool(hosted.configure, hosted.tell, idle=600)
        config = uvicorn.Config(
            StdioHost(pool), lifespan="off", log_config=None, log_level="critical", access_log=False
        )
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        ready.set()
        while not done.is_set():
            await asyncio.sleep(0.02)
        server.should_exit = server.force_exit = True
        await pool.close()
        await serving

    asyncio.run(serve())


Begun = Callable[..., Client]


@pytest.fixture
def client(hosted: Hosted) -> Begun:
    """Return clients that have begun."""
    hosted.add("s")

    def begun(server: str = "s", caller: str = "") -> Client:
        found = Client(hosted, server, caller)
        found.begin()
        return found

    return begun
