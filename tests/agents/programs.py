"""Programs of others that tests run: real agents, MCP servers, MCP's referee. From npm, once, into a cached folder.

The SDKs of tests/sdks come from PyPI into the same folder.

`python -m tests.agents.programs` installs all of them and fails where one cannot be had, which a run of the whole
suite wants. A test that `needed(…)` one is skipped with the reason where there is none, and starts it by `command(…)`.
`$SIGNALBOX_TEST_AGENTS` moves the folder, which lies outside the repository and holds some 3 GB.
"""

from __future__ import annotations

import fcntl
import functools
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

FOLDER_VARIABLE = "SIGNALBOX_TEST_AGENTS"
INSTALLED_WITHIN = 240.0  # seconds


class Package(NamedTuple):
    """An npm package, the versions of it that the tests were made for, and where its program lies in it.

    `node` is the least version of Node that runs it, where it is no program of its own. `options` are npm's.
    """

    name: str
    versions: str
    program: str
    node: int = 20
    options: tuple[str, ...] = ()


ARM = platform.machine() == "aarch64"
PACKAGES = {
    "claude-code": Package(
        "@anthropic-ai/claude-code", "~2.1.197", "@anthropic-ai/claude-code-linux-*/claude"
    ),
    # npm serves the one above to Node 20. The program needs no Node.
    "claude-code-newest": Package(
        "@anthropic-ai/claude-code", "2.1.332", "@anthropic-ai/claude-code-linux-*/claude"
    ),
    "codex": Package("@openai/codex", "~0.169.0", "@openai/codex-linux-*/vendor/*/bin/codex"),
    "codex-newest": Package("@openai/codex", "0.171.0", "@openai/codex-linux-*/vendor/*/bin/codex"),
    # Node 20 runs it, too, at half as much again.
    "gemini": Package("@google/gemini-cli", "~0.61.0", "@google/gemini-cli/bundle/gemini.js", 22),
    # The build that runs on any machine; "opencode-ai" would install two.
    "opencode": Package(
        f"opencode-linux-{'arm64' if ARM else 'x64-baseline'}", "~1.18.33", "opencode-linux-*/bin/opencode"
    ),
    "copilot": Package(
        f"@github/copilot-linux-{'arm64' if ARM else 'x64'}", "1.0.102", "@github/copilot-linux-*/copilot"
    ),
    "qwen-code": Package(
        "@qwen-code/qwen-code",
        "0.24.4",
        "@qwen-code/qwen-code/cli-entry.js",
        22,
        options=("--omit=optional",),  # pictures, clipboard, microphone
    ),
    "kilo": Package(
        f"@kilocode/cli-linux-{'arm64' if ARM else 'x64-baseline'}", "7.7.9", "@kilocode/cli-linux-*/bin/kilo"
    ),
    # They speak the Agent Client Protocol for the first two.
    "claude-agent-acp": Package(
        "@agentclientprotocol/claude-agent-acp",
        "~0.100.0",
        "@agentclientprotocol/claude-agent-acp/dist/index.js",
    ),
    "codex-acp": Package(
        "@agentclientprotocol/codex-acp",
        "~2.6.0",
        "@agentclientprotocol/codex-acp/dist/index.js",
        options=("--omit=optional",),  # another Codex: it is told which to use
    ),
    "mcp-everything": Package(
        "@modelcontextprotocol/server-everything",
        "2026.8.31",
        "@modelcontextprotocol/server-everything/dist/index.js",
    ),
    "mcp-filesystem": Package(
        "@modelcontextprotocol/server-filesystem",
        "2026.8.31",
        "@modelcontextprotocol/server-filesystem/dist/index.js",
    ),
    # An authorization server, for MCP servers at which people sign in.
    "oidc-provider": Package("oidc-provider", "~9.13.3", "oidc-provider/lib/index.js", 22),
    # The referee of MCP servers, for the versions of the protocol of 2025 and for that of 2026.
    "conformance-2025": Package(
        "@modelcontextprotocol/conformance", "0.1.16", "@modelcontextprotocol/conformance/dist/index.js", 22
    ),
    "conformance-2026": Package(
        "@modelcontextprotocol/conformance",
        "0.2.0-alpha.12",
        "@modelcontextprotocol/conformance/dist/index.js",
        22,
    ),
    # What reads the OpenAPI document: a linter, and what makes a client of it (with TypeScript's compiler).
    "redocly": Package("@redocly/cli", "2.77.0", "@redocly/cli/bin/cli.js", 22),
    "openapi-typescript": Package("openapi-typescript", "7.13.0", "openapi-typescript/bin/cli.js"),
    "openapi-fetch": Package("openapi-fetch", "0.17.0", "openapi-fetch/dist/index.mjs"),
}
NODE = Package(f"node-linux-{'arm64' if ARM else 'x64'}", "^22", "*/bin/node")


class Missing(Exception):
    """A program cannot be had here; the text says why."""


def folder() -> Path:
    """Return where the programs are kept."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "signalbox-tests" / "agents"


@functools.cache
def command(agent: str) -> tuple[str, ...]:
    """Return the words that start a program, installed where it is not here yet. Raises Missing."""
    package = PACKAGES[agent]
    path = str(_installed(package))
    return (_node(package.node), path) if path.endswith(".js") else (path,)


def needed(*agents: str) -> None:
    """Skip the test that needs these agents where one cannot be had, with the reason."""
    for agent in agents:
        try:
            command(agent)
        except Missing as problem:
            pytest.skip(f"{agent}: {problem}")


def _node(at_least: int) -> str:
    found = shutil.which("node")
    if found is not None:
        said = subprocess.run([found, "--version"], check=False, capture_output=True, text=True, timeout=30)
        if int(said.stdout.lstrip("v").partition(".")[0] or 0) >= at_least:
            return found
    return str(_installed(NODE))


def _installed(package: Package) -> Path:
    """Return a package's program. One process installs, others wait for it; none sees half of it."""
    words = f"{package.name}@{package.versions}"
    place = folder() / "".join(sign if sign.isalnum() or sign in ".-" else "_" for sign in words)
    if found := _program(package, place):
        return found
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := _program(package, place):
            return found
        aside = place.with_name(f"{place.name}.new")
        shutil.rmtree(aside, ignore_errors=True)
        _install(words, aside, package.options)
        if _program(package, aside) is None:
            raise Missing(f"the npm package {words} has no program for this machine")
        aside.replace(place)
    found = _program(package, place)
    assert found is not None
    return found


def _program(package: Package, place: Path) -> Path | None:
    return max((place / "node_modules").glob(package.program), default=None)


def _install(words: str, place: Path, options: tuple[str, ...]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Missing(f"npm, which installs {words}, is not on the PATH")
    # Nothing of a package runs at its installation: all of them carry their programs ready-made.
    how = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--prefix", str(place)]
    try:
        done = subprocess.run(
            [npm, "install", *how, *options, words],
            check=False,
            capture_output=True,
            text=True,
            timeout=INSTALLED_WITHIN,
            umask=0o022,  # isolated servers run them as another user, and Signalbox's settings let in their own alone
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"npm did not install {words} within {INSTALLED_WITHIN:.0f} s") from None
    if done.returncode != 0:
        raise Missing(f"npm cannot install {words}: {done.stderr.strip()[-500:]}")


def main() -> int:
    """Install all of them, some at once; 1 where one cannot be had."""
    with ThreadPoolExecutor(2) as some:
        failed = [problem for problem in some.map(_tried, PACKAGES) if problem]
    from tests.sdks import environments  # which needs this module

    failed += filter(None, [environments.try_installing()])
    sys.stderr.write("".join(f"{problem}\n" for problem in failed))
    return 1 if failed else 0


def _tried(agent: str) -> str:
    try:
        command(agent)
    except Missing as problem:
        return str(problem)
    return ""


if __name__ == "__main__":
    sys.exit(main())
