"""What was done and heard by all who work, and how an answer is judged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from tests.gateway.example_server import Example
from tests.served import KEYS, Served

OF_THE_PROXY = {502, 504}


@dataclass
class Ledger:
    """What was done and heard, by all threads: each only adds."""

    acknowledged: list[str] = field(default_factory=list)
    heard: list[list[str]] = field(default_factory=list)
    ordered: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    told: dict[str, tuple[str, bool]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)  # requests and calls that nobody decides about
    called: dict[str, str] = field(default_factory=dict)  # tool calls and what became of them
    driven: dict[str, str] = field(default_factory=dict)  # sessions and what their agents said
    files: dict[str, str] = field(default_factory=dict)  # messages and the digests of their files
    answers: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[float, str]] = field(default_factory=list)  # when something was refused or broke
    strange: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds until an event was acknowledged
    failed: list[str] = field(default_factory=list)

    def judge(self, answer: httpx.Response, *good: int) -> bool:
        """Note an answer, and say whether it is as it should be.

        A 503 of ours says when to come back. It, and what the proxy answers where a server is gone, is refused: that
        may be while there is trouble. Any other answer is strange.
        """
        code, what = answer.status_code, f"{answer.request.method} {answer.request.url.path}"
        self.answers[str(code)] += 1
        if code in good:
            return True
        if (code == 503 and "Retry-After" in answer.headers) or code in OF_THE_PROXY:
            self.refused.append((time.monotonic(), f"{what}: {code}"))
        else:
            self.strange.append(f"{what}: {code} {answer.text[:300]}")
        return False

    def broke(self, problem: httpx.HTTPError) -> None:
        """Note a line that broke, or could not be had."""
        self.answers[type(problem).__name__] += 1
        self.refused.append((time.monotonic(), repr(problem)))


@dataclass
class Load:
    """What all who work have in common."""

    url: str
    database: Served  # any of the servers, to look into the database
    example: Example  # the MCP server behind the gateway
    ledger: Ledger = field(default_factory=Ledger)
    enough: threading.Event = field(default_factory=threading.Event)  # begin nothing new
    over: threading.Event = field(default_factory=threading.Event)  # end

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {KEYS['all']}"}, timeout=40, verify=False
        )

    def once(self, send: Callable[[], httpx.Response], *good: int) -> httpx.Response | None:
        """Send; None where it is not answered as it should be."""
        try:
            answer = send()
        except httpx.HTTPError as problem:
            self.ledger.broke(problem)
            return None
        return answer if self.ledger.judge(answer, *good) else None

    def insist(self, send: Callable[[], httpx.Response], *good: int) -> httpx.Response | None:
        """Send until it is answered as it should be; None where all is over before."""
        while not self.over.is_set():
            if (answer := self.once(send, *good)) is not None:
                return answer
            self.over.wait(0.3)
        return None


def guarded(load: Load, work: Callable[[], None]) -> threading.Thread:
    """Do it in a thread; what goes wrong in it is told at the end."""

    def run() -> None:
        try:
            work()
        except Exception as problem:
            load.ledger.failed.append(f"{getattr(work, 'func', work)}: {problem!r}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
