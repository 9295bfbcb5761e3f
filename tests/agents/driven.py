"""A machine with the four real agents, led by scripted models, and `signalbox runner` on it: nothing of this one's.

Each agent works in a git repository of its own. The runner can be killed and started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.agents import programs
from tests.agents.real_agents import AGENTS as HEADLESS
from tests.agents.real_agents import MORE_AGENTS as MORE_HEADLESS
from tests.agents.scripted_models import Script, scripted
from tests.served import KEYS, ROOT, Served

# What a runner calls the agents, how they are known to the tests of headless runs, and what they need on the PATH.
AGENTS = {"claude": "claude-code", "codex": "codex", "gemini": "gemini", "opencode": "opencode"}
ON_PATH = ("claude-agent-acp", "codex-acp", "codex", "gemini", "opencode")
MORE_AGENTS = {"copilot": "copilot", "qwen": "qwen-code", "kilo": "kilo"}  # driven by themselves
HEADLESS_OF = {agent: (HEADLESS | MORE_HEADLESS)[known] for agent, known in (AGENTS | MORE_AGENTS).items()}
WITHIN = 120.0  # seconds; on a busy machine OpenCode takes one minute to begin
DONE = {"completed", "failed", "stopped"}


class Machine:
    """A home, a folder of projects, the agents' programs on a PATH, and the runner."""

    def __init__(
        self, served: Served, folder: Path, agents: tuple[str, ...], on_path: Mapping[str, str] | None = None
    ) -> None:
        """Set up agents; `on_path` are the programs that it has, by name those in PACKAGES."""
        self.served = served
        self.host = f"host-{uuid.uuid4().hex[:8]}"
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir(parents=True)
        self.http = served.client("operator")
        self.models = contextlib.ExitStack()
        self.scripts: dict[str, Script] = {}
        self.environ: dict[str, str] = {}
        for agent in agents:
            self._set_up(agent)
        self._put_on_path(on_path or {name: name for name in ON_PATH})
        self.process: subprocess.Popen[bytes] | None = None

    def _set_up(self, agent: str) -> None:
        """Write an agent's settings, as far as its user has any, and its project."""
        script = self.scripts[agent] = self.models.enter_context(scripted())
        script.escalates = True
        project = self.project(agent)
        project.mkdir(parents=True)
        who = ("-c", "user.name=Dev", "-c", "user.email=dev@example.com")
        for words in (("init", "-q"), (*who, "commit", "-q", "--allow-empty", "-m", "First")):
            subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)
        self.environ |= HEADLESS_OF[agent].settings(self.home, project, script.address)

        def asking(text: str) -> str:
            return json.dumps(json.loads(text) | {"permission": {"bash": "ask", "edit": "ask"}})

        change: dict[str, Callable[[str], str]] = {
            ".claude/settings.json": lambda _: "{}",  # nothing is allowed by itself
            ".codex/config.toml": lambda text: re.sub(r"(approval_policy|sandbox_mode) = .*\n", "", text),
            ".gemini/settings.json": lambda text: json.dumps(
                json.loads(text) | {"model": {"name": "scripted"}}
            ),
            ".config/opencode/opencode.json": asking,
            ".config/kilo/kilo.json": asking,
        }
        for name, changed in change.items():
            file = self.home / name
            if name.startswith((f".{agent}/", f".config/{agent}/")):
                file.write_text(changed(file.read_text()))

    def _put_on_path(self, on_path: Mapping[str, str]) -> None:
        folder = self.home / "bin"
        folder.mkdir()
        for name, package in on_path.items():
            words = " ".join(f"'{word}'" for word in programs.command(package))
            (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (folder / name).chmod(0o755)

    def project(self, agent: str) -> Path:
        """Return the repository that an agent works in."""
        return self.work / agent

    def start(self, *flags: str) -> None:
        """Start the runner, with more flags."""
        settings = self.home / "runner.toml"
        settings.write_text('pass = ["MODEL_KEY"]\n')
        environ = {
            "HOME": str(self.home),
            "PATH": os.pathsep.join([str(self.home / "bin"), os.defpath]),
            "PYTHONPATH": str(ROOT),
            "SIGNALBOX_URL": self.served.url,
            "SIGNALBOX_KEY": KEYS["runner"],
            **self.environ,
        }
        words = ["runner", "--directory", str(self.work), "--config", str(settings), "--hostname", self.host]
        words += flags
        with (self.home / "said").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coordinator.client.main", *words],
                cwd=self.work,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """End the runner as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the runner, which ends its agents, and the models."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        self.models.close()

    def order(
        self, agent: str, prompt: str, session: str | None = None, *, called: str = ""
    ) -> tuple[str, str]:
        """Order a turn of an agent; return the ids of its run and its session. `called`: the runner's name for it."""
        body: dict[str, Any] = {
            "type": "resume_session" if session else "start_session",
            "parameters": {"prompt": prompt, "agent": called or agent},
            "project_dir": str(self.project(agent)),
            "additional_demands": {"hostname": self.host},
        }
        answer = self.http.post("/runs", json=body | ({"session_id": session} if session else {}))
        assert answer.status_code == 201, answer.text
        return answer.json()["run_id"], answer.json()["session_id"]

    def asked(self, run: str, session: str, command: str) -> str:
        """Return the request that waits for a command of the session, as soon as it does."""

        def waiting() -> str | None:
            rows = self.served.sql(
                "SELECT r.request_id, c.tool_input FROM permission_requests r JOIN permission_context c"
                " ON c.request_id = r.request_id WHERE r.status = 'pending' AND c.session_id = ?",
                (session,),
            )
            over = not rows and self.status(run) in DONE
            assert not over, f"{command} is not asked about: {self.told(run, session)}"
            return next((str(one) for one, given in rows if command in str(given)), None)

        return str(self.until(waiting, f"{command} is asked about", run, session))

    def status(self, run: str) -> str:
        """Return where a run stands."""
        return str(self.served.sql("SELECT status FROM runs WHERE run_id = ?", (run,))[0][0])

    def ended(self, run: str, session: str) -> str:
        """Wait until a run has ended, and return how."""
        return str(
            self.until(lambda: now if (now := self.status(run)) in DONE else None, "end", run, session)
        )

    def until(self, check: Callable[[], Any], what: str, run: str, session: str) -> Any:
        """Return the first true answer of a check; what is known of the run where there is none in time."""
        deadline = time.monotonic() + WITHIN
        while not (found := check()):
            assert time.monotonic() < deadline, f"not so: {what}. {self.told(run, session)}"
            time.sleep(0.05)
        return found

    def told(self, run: str, session: str) -> str:
        """Return what is known of a run, for a test that fails."""
        events = self.served.sql(
            "SELECT event_type, tool_name, tool_input, error, content FROM events WHERE session_id = ? ORDER BY id",
            (session,),
        )
        asked = [
            {name: len(script.requests), "others": script.others} for name, script in self.scripts.items()
        ]
        said = (self.home / "said").read_text(errors="replace")[-3000:]
        return f"{self.status(run)} {[str(one)[:400] for one in events]} {asked} {said}"
