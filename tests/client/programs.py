"""`signalbox hook` as an agent starts it: a process of its own, in a home of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.client import settings
from tests.served import KEYS, ROOT, Served

WITHIN = 90.0  # seconds; a test process may get little of the machine


@dataclass(frozen=True)
class Said:
    """What a hook command answered: its exit code, its words, and how long it took, in seconds."""

    code: int
    out: str
    err: str
    took: float

    @property
    def answer(self) -> dict[str, Any]:
        """What the agent reads; {} for nothing."""
        found: dict[str, Any] = json.loads(self.out) if self.out else {}
        return found.get("hookSpecificOutput", found)

    @property
    def decision(self) -> str | None:
        """Whether the call runs, in whichever words."""
        said = self.answer
        verdict = said.get("decision")
        return verdict["behavior"] if isinstance(verdict, dict) else said.get("permissionDecision", verdict)

    @property
    def why(self) -> str:
        """The reason that the agent is given."""
        said = self.answer
        verdict = said.get("decision")
        words = verdict.get("message") if isinstance(verdict, dict) else said.get("reason")
        return str(words or said.get("permissionDecisionReason") or "")


class Home:
    """The home of a person whose agents call the command."""

    def __init__(self, folder: Path, url: str, key: str = KEYS["agent"]) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        self.env = {
            name: value for name, value in kept.items() if not name.startswith(("SIGNALBOX_", "XDG_"))
        }
        self.env |= {"HOME": str(folder), "PYTHONPATH": str(ROOT)}
        self.connect(url, key)

    def connect(self, url: str, key: str = KEYS["agent"], **agents: Mapping[str, Any]) -> None:
        """Write the settings file, as `signalbox connect` does."""
        file = self.folder / ".config/signalbox/client.json"
        content = json.dumps({"url": url, "key": key, "agents": agents}).encode()
        settings.write_private_file(str(file), content)

    @property
    def kept(self) -> list[Path]:
        """The hooks that wait to be told."""
        return sorted((self.folder / ".local/state/signalbox").glob("*/spool/[0-9]*"))

    def start(
        self, agent: str, payload: Any, *words: str, command: Sequence[str] = (), **env: str
    ) -> subprocess.Popen[bytes]:
        """Start the command and hand it a hook; a payload that is no object goes as it is."""
        process = subprocess.Popen(
            [*(command or (sys.executable, "-m", "coordinator.client.main", "hook", agent)), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env | env,
            cwd=self.folder,
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(payload if isinstance(payload, bytes) else json.dumps(payload).encode())
            process.stdin.close()
        process.stdin = None
        return process

    def hook(self, agent: str, payload: Any, *words: str, **env: str) -> Said:
        """Run the command to its end."""
        began = time.monotonic()
        return self.end(self.start(agent, payload, *words, **env), began)

    def end(self, process: subprocess.Popen[bytes], began: float = 0.0) -> Said:
        """Wait for a command that was started."""
        out, err = process.communicate(timeout=WITHIN)
        return Said(process.returncode, out.decode(), err.decode(), time.monotonic() - began)

    def told(self, served: Served, session: str, columns: str = "event_type") -> list[tuple[Any, ...]]:
        """Return what the server knows of an agent's session."""
        return served.sql(
            f"SELECT {columns} FROM events e JOIN event_context c ON c.event_id = e.id"
            " JOIN sessions s ON s.session_id = e.session_id WHERE s.executor_session_id = ? ORDER BY e.id",
            (session,),
        )


@contextlib.contextmanager
def until(seconds: float = WITHIN) -> Iterator[Any]:
    """A clock for loops that look again: `while look(): pause()`."""
    deadline = time.monotonic() + seconds

    def pause() -> None:
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)

    yield pause
