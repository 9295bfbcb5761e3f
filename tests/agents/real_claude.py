"""The real Claude Code in a home of its own, led by a scripted model on loopback: no account, no internet.

`model(commands…)` answers as the model would: with one call of Bash per command, then with text. `Claude` runs
the program headless with the settings that Signalbox prints, and may run all of Bash as far as its own rules go:
whatever holds a call back is Signalbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from coordinator.dialects.claude_settings import WAIT, settings_for
from tests.served import KEYS, Served

PACKAGE = "@anthropic-ai/claude-code@2.1.197"
PROGRAM = Path("node_modules/@anthropic-ai/claude-code-linux-x64/claude")


def installed(folder: Path) -> Path | None:
    """Return the program, from PATH or else installed from npm into `folder`; None where neither can be had."""
    if found := shutil.which("claude"):
        return Path(found)
    if (npm := shutil.which("npm")) is None:
        return None
    how = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0", "--prefix", str(folder)]
    words = [npm, "install", *how, PACKAGE]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(words, check=False, capture_output=True, timeout=60)
    return folder / PROGRAM if (folder / PROGRAM).exists() else None


class Model(BaseHTTPRequestHandler):
    """Answers the N-th request of a conversation with its N-th command, and with "Done." after the last."""

    commands: Sequence[str] = ()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        at = sum(message["role"] == "assistant" for message in asked["messages"])
        leads = any(tool.get("name") == "Bash" for tool in asked.get("tools", ()))
        command = self.commands[at] if leads and at < len(self.commands) else None
        block: dict[str, Any]
        if command is None:
            block, delta, reason = (
                {"type": "text", "text": ""},
                {"type": "text_delta", "text": "Done."},
                "end_turn",
            )
        else:
            block = {"type": "tool_use", "id": f"toolu_{at}", "name": "Bash", "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps({"command": command})}
            reason = "tool_use"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {
            "id": f"msg_{at}",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": [],
        }
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in (
            {"type": "message_start", "message": message | {"stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
            {"type": "message_stop"},
        ):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def model(*commands: str) -> Iterator[str]:
    """Serve a model that wants to run these commands, one after the other; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Scripted", (Model,), {"commands": commands}))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Claude:
    """One headless run of the real program in a new folder; `wait` is how long its hooks wait for a person."""

    def __init__(
        self, program: Path, folder: Path, served: Served, command: str, *, wait: int = WAIT
    ) -> None:
        self._model = contextlib.ExitStack()
        address = self._model.enter_context(model(command))
        self.said = folder / "said.jsonl"
        home = folder / "home"
        self.folder = folder / "work"
        self.folder.mkdir(parents=True)
        (home / ".claude").mkdir(parents=True)
        settings = json.loads(settings_for(served.url))
        settings["permissions"] = {"allow": ["Bash"]}
        text = json.dumps(settings).replace(f"?wait={WAIT}", f"?wait={wait}")
        (home / ".claude" / "settings.json").write_text(text)
        self.process = subprocess.Popen(
            [program, "-p", "Do it.", "--output-format", "stream-json", "--verbose"],
            cwd=self.folder,
            env={
                "HOME": str(home),
                "PATH": os.defpath,
                "HOSTNAME": "laptop",
                "ANTHROPIC_BASE_URL": address,
                "ANTHROPIC_API_KEY": "sk-ant-made-up",
                "SIGNALBOX_KEY": KEYS["agent"],
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=self.said.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ended(self, within: float = 40) -> list[str]:
        """Wait until it has ended, and return what its calls of tools came to."""
        self.process.wait(within)
        lines = [json.loads(line) for line in self.said.read_text().splitlines() if line.startswith("{")]
        contents = [line["message"]["content"] for line in lines if line["type"] == "user"]
        return [str(part["content"]) for content in contents for part in content if "tool_use_id" in part]

    @property
    def ran(self) -> bool:
        """Say whether `touch marker` ran."""
        return (self.folder / "marker").exists()

    def close(self) -> None:
        """End it and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._model.close()
