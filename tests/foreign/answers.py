"""Asks for many addresses and tells at the end what failed, each reason once."""

from __future__ import annotations

import json
import re
import traceback
from html import unescape
from typing import Any
from urllib.parse import quote

from django.core.signals import got_request_exception
from django.test import Client

FURTHER = re.compile(r'<a[^>]*href="(\?[^"]*\b(?:page|before|after|p|until|from)=[^"]*)"')
MOST_PAGES = 60  # of one list


class Answers:
    """What a client was answered. `failed`: a reason with one address for it."""

    def __init__(self, client: Client) -> None:
        client.raise_request_exception = False
        self.client = client
        self.failed: dict[str, str] = {}

    def get(self, place: str) -> tuple[Any, bytes]:
        """Ask for an address; return the answer and its whole body."""
        raised: list[str] = []

        def note(**_: Any) -> None:
            raised.append(_reason())

        got_request_exception.connect(note)
        try:
            answer: Any = self.client.get(place)
            body = b"".join(answer.streaming_content) if answer.streaming else answer.content
        except Exception:  # in the middle of a streamed body
            self.failed.setdefault(_reason(), place)
            return None, b""
        finally:
            got_request_exception.disconnect(note)
        if answer.status_code >= 500:
            self.failed.setdefault(raised[0] if raised else str(answer.status_code), place)
        return answer, body

    def pages(self, start: str) -> int:
        """Ask for a list and its further pages; return how many there were."""
        base = start.partition("?")[0]
        waiting, seen = [start], set[str]()
        while waiting and len(seen) < MOST_PAGES:
            place = waiting.pop()
            if place not in seen:
                seen.add(place)
                _, body = self.get(place)
                waiting += [base + unescape(link) for link in FURTHER.findall(body.decode())]
        return len(seen)

    def whole_list(self, place: str) -> None:
        """Ask a door for a list, and for what follows, as a program does; every answer is JSON as others read it."""
        query: str | None = ""
        for _ in range(MOST_PAGES):
            answer, body = self.get(f"{place}{query}")
            if answer is None or "json" not in answer.headers.get("Content-Type", ""):
                return
            query = _next(json.loads(body, parse_constant=_no_json))
            if query is None:
                return

    def check(self) -> None:
        told = "\n".join(f"{place[:200]}\n{reason}" for reason, place in self.failed.items())
        assert not self.failed, f"{len(self.failed)} failures\n{told}"


def _reason() -> str:
    return "".join(traceback.format_exc().splitlines(keepends=True)[-7:])[-600:]


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _next(said: Any) -> str | None:
    if isinstance(said, dict) and said.get("next_cursor"):
        return f"?cursor={quote(said['next_cursor'], safe='')}"
    if isinstance(said, dict) and said.get("events"):
        return f"?after={said['events'][-1]['id']}"
    return None
