"""SDKs of others from PyPI, in one cached environment beside the npm programs of tests/agents/programs.py."""

from __future__ import annotations

import fcntl
import functools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents import programs

PACKAGES = (
    "claude-agent-sdk==0.2.189",
    "google-adk==2.13.0",
    "langgraph==1.2.24",
    "langgraph-checkpoint-sqlite>=3,<4",
    "openai-agents==0.24.0",
    "pydantic-ai-slim==2.68.0",
    "httpx>=0.28,<1",
)
INSTALLED_WITHIN_SECONDS = 600.0  # the one of Claude brings a program of 400 MB
SDK = programs.folder() / "sdks-2"


@functools.cache
def install_sdks() -> Path:
    """Return the Python of the environment, made where it is not here yet. Raises programs.Missing."""
    python = SDK / "bin" / "python"
    SDK.parent.mkdir(parents=True, exist_ok=True)
    with SDK.with_name(f"{SDK.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = SDK / "complete"
        if complete.exists() and complete.read_text() == "\n".join(PACKAGES):
            return python
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", SDK], check=True, capture_output=True)
            subprocess.run(
                [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES],
                check=True,
                capture_output=True,
                text=True,
                timeout=INSTALLED_WITHIN_SECONDS,
            )
        except subprocess.CalledProcessError as problem:
            raise programs.Missing(f"pip cannot install the SDKs: {str(problem.stderr)[-500:]}") from None
        except subprocess.TimeoutExpired:
            raise programs.Missing("pip did not install the SDKs in time") from None
        complete.write_text("\n".join(PACKAGES))
    return python


def try_installing() -> str:
    """Return why the environment cannot be had; "" where it is here."""
    try:
        install_sdks()
    except programs.Missing as problem:
        return str(problem)
    return ""


def require_sdks() -> Path:
    """Return the environment's Python; skip the test with the reason where there is none."""
    try:
        return install_sdks()
    except programs.Missing as problem:
        pytest.skip(str(problem))
