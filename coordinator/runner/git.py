"""git as a program with bounds: how long it may take, how much it may say, and nothing of a repository that it runs."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WITHIN = 20.0  # seconds
MOST_OUTPUT_BYTES = 32 * 1024 * 1024  # bytes of an answer
LAST_WORDS = 2_000
READ = 1 << 16
# What a repository's own settings could have run, and how much could be asked of others.
NOTHING_RUNS = (
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
    "-c",
    "core.pager=cat",
    "-c",
    "protocol.allow=never",
    "-c",
    "maintenance.auto=false",
    "-c",
    "gc.auto=0",
    "-c",
    "submodule.recurse=false",
)
PASSED = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "USER", "LOGNAME")


class GitFailed(Exception):
    """git is not there, took too long or said no; the text says which."""


@dataclass(frozen=True, slots=True)
class GitOutput:
    """What git wrote; `cut` where it wrote more than was wanted."""

    output: bytes
    cut: bool = False

    @property
    def decoded_git_output(self) -> str:
        """The answer as text, without the end of its last line."""
        return self.output.decode("utf-8", "surrogateescape").rstrip("\n")


def run_git(
    *words: str,
    directory: str,
    input_bytes: bytes = b"",
    variables: Mapping[str, str] | None = None,
    most: int = MOST_OUTPUT_BYTES,
    within: float = WITHIN,
    settings: Sequence[str] = (),
) -> GitOutput:
    """Run git in a directory and return its answer. Raises GitFailed. Blocks: call it in a thread.

    `given` is its input; of more than `most` bytes of answer the rest is not waited for.
    """
    with tempfile.TemporaryFile() as words_in, tempfile.TemporaryFile() as errors:
        words_in.write(input_bytes)
        words_in.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603 - its words are ours, paths among them
                ["git", *NOTHING_RUNS, *settings, *words],  # noqa: S607 - the user's own
                cwd=directory,
                env=build_git_environment(variables or {}),
                stdin=words_in,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as problem:
            raise GitFailed(describe_git_start_error(problem, directory)) from None
        try:
            answer = read_output_of_git_process(process, most, time.monotonic() + within)
            code = 0 if answer.cut else process.wait(within)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise GitFailed(f"git {words[0]} took longer than {within:.0f} s") from None
        finally:
            end_git_process(process)
        if code != 0:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - LAST_WORDS))
            error_text = errors.read().decode("utf-8", "replace").strip()
            raise GitFailed(error_text or f"git {words[0]} ended with exit code {code}")
        return answer


def build_git_environment(variables: Mapping[str, str]) -> dict[str, str]:
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    own_variables = {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
    }
    return {**passed, **own_variables, **variables}


def describe_git_start_error(problem: OSError, directory: str) -> str:
    if not os.path.isdir(directory):
        return f"{directory} is not there any more"
    if isinstance(problem, FileNotFoundError):
        return "git is not installed on the runner's machine"
    return f"git cannot be started: {problem}"


def read_output_of_git_process(process: subprocess.Popen[bytes], most: int, deadline: float) -> GitOutput:
    """Read until the end, the bound or the deadline. Raises TimeoutError."""
    assert process.stdout is not None
    parts, size = [], 0
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not waiting.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            part = os.read(process.stdout.fileno(), READ)
            parts.append(part)
            size += len(part)
            if size > most:
                return GitOutput(b"".join(parts)[:most], cut=True)
            if not part:
                return GitOutput(b"".join(parts))


def end_git_process(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.stdout.close()
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
