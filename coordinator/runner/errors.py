"""Errors, with messages for the page."""

from __future__ import annotations


class RunnerRefused(Exception):
    """What is asked for is not done here; the text says why and what to do."""


class FileMissing(RunnerRefused):
    """An agent reads a file that does not exist."""


class AgentFailed(Exception):
    """The agent's process cannot go on; the text says what happened to it."""


class ServerRefused(Exception):
    """The server answered, and its answer is no: another try changes nothing."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}" if detail else str(status))
        self.status = status
        self.detail = detail


class ServerTimedOut(Exception):
    """The server did not answer within the patience that there was."""
