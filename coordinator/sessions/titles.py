"""Titles of sessions: those that are stored, and where none is stored yet, ones made from their first words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from django.db import connection
from django.db.models.functions import Substr

from coordinator.engine.values import cast_to_text_sql
from coordinator.lib.invisible import reveal_invisible_characters
from coordinator.models import Run, SessionTitle, UnreadableText
from coordinator.models.fields import decode_stored_json
from coordinator.sessions.title_words import READ_UP_TO, is_meaningful_title, make_title_from_text

BEGINNING = 20  # messages among which a person's first words are looked for
AT_ONCE = 100  # sessions whose first words one statement reads


class TitleGuess(NamedTuple):
    """A title that was made of a session's first words; `settled` where a person has said what it is about."""

    title: str
    settled: bool


def load_session_titles(session_ids: Iterable[str | None]) -> dict[str, str]:
    """Return the titles of those of the sessions that have one. A few queries, however many sessions there are."""
    ids = sorted({session_id for session_id in session_ids if session_id})
    if not ids:
        return {}
    stored_titles = dict(SessionTitle.objects.filter(pk__in=ids).values_list("pk", "title"))
    guessed = guess_session_titles([session_id for session_id in ids if session_id not in stored_titles])
    titles = {session_id: guess.title for session_id, guess in guessed.items()} | stored_titles
    return {session_id: reveal_invisible_characters(title) for session_id, title in titles.items()}


def load_session_title(session_id: str) -> str:
    """Return a session's title; empty where nobody has said anything yet."""
    return load_session_titles([session_id]).get(session_id, "")


def guess_session_titles(session_ids: Iterable[str]) -> dict[str, TitleGuess]:
    """Return what sessions' first words say: a person's, else the first run's prompt, else whatever there was."""
    guesses: dict[str, TitleGuess] = {}
    ids = list(session_ids)
    spoken = first_message_titles_by_session(ids)
    quiet = [
        session_id for session_id in ids if not any(map(is_meaningful_title, spoken.get(session_id, ())))
    ]
    prompts = first_prompt_titles_by_session(quiet)
    for session_id in ids:
        spoken_texts = spoken.get(session_id, [])
        title = next(filter(is_meaningful_title, spoken_texts), "")
        if title:
            guesses[session_id] = TitleGuess(title, settled=True)
        elif guess := next(filter(None, [prompts.get(session_id, ""), *spoken_texts]), ""):
            guesses[session_id] = TitleGuess(guess, settled=False)
    return guesses


def first_prompt_titles_by_session(ids: list[str]) -> dict[str, str]:
    """Return the title that each session's first run's prompt makes."""
    if not ids:
        return {}
    runs = Run.objects.filter(session_id__in=ids).order_by("-created_at", "-run_id")
    heads = runs.annotate(head=Substr("prompt", 1, READ_UP_TO)).values_list("session_id", "head")
    return {session_id: make_title_from_text(head) for session_id, head in heads if isinstance(head, str)}


# By hand, because the ORM's way to say so makes PostgreSQL walk the whole table. Naming all columns of the index
# sbx_events_kinds in the order lets both engines read it from its beginning, whatever they guess of the rows.
_FIRST_WORDS = f"""
SELECT session_id, id, head FROM (
    SELECT e.session_id, e.id, e.role, substr({cast_to_text_sql("e.content")}, 1, {READ_UP_TO}) AS head FROM events e
    WHERE e.session_id = %s AND e.event_type = 'message' AND e.tool_name IS NULL
    ORDER BY e.tool_name, e.id LIMIT {BEGINNING}
) m WHERE role = 'user'
"""  # constants  # noqa: S608


def first_message_titles_by_session(ids: list[str]) -> dict[str, list[str]]:
    """Return the titles that people's first messages make, in their order, for each session that has any."""
    first_messages: dict[str, list[str]] = {}
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        with connection.cursor() as cursor:
            cursor.execute(f"{' UNION ALL '.join([_FIRST_WORDS] * len(some))} ORDER BY 2", some)
            rows = cursor.fetchall()
        for session_id, _, stored in rows:
            # Once one says what the session is about, what follows it need not be read.
            if not any(map(is_meaningful_title, first_messages.get(session_id, ()))) and (
                title := make_title_from_text(extract_message_text(stored))
            ):
                first_messages.setdefault(session_id, []).append(title)
    return first_messages


def load_first_prompt_id_and_text(session_id: str) -> tuple[int, str]:
    """Return the id and the text of the first message of a person that says something, else the first run's prompt."""
    with connection.cursor() as cursor:
        cursor.execute(f"{_FIRST_WORDS} ORDER BY 2", [session_id])
        rows = [(event_id, extract_message_text(stored)) for _, event_id, stored in cursor.fetchall()]
    titled = [(row, title) for row in rows if (title := make_title_from_text(row[1]))]
    telling = next((row for row, title in titled if is_meaningful_title(title)), None)
    if telling or titled:
        return telling or titled[0][0]
    runs = Run.objects.filter(session_id=session_id).order_by("created_at", "run_id")
    head = runs.annotate(head=Substr("prompt", 1, READ_UP_TO)).values_list("head", flat=True).first()
    return 0, head if isinstance(head, str) else ""


def extract_message_text(stored: Any) -> str:
    """Return the text in a message's stored blocks; they may have been cut, or be no JSON."""
    blocks = decode_stored_json(stored) if isinstance(stored, str) else None
    if isinstance(blocks, UnreadableText):
        return extract_cut_json_text(blocks)
    return "\n".join(iterate_message_block_texts(blocks))


def iterate_message_block_texts(blocks: Any) -> Iterator[str]:
    for block in blocks if isinstance(blocks, list) else [blocks]:
        if isinstance(block, str):
            yield block
        elif isinstance(block, dict) and isinstance(block.get("text"), str):
            yield block["text"]


def extract_cut_json_text(stored: str) -> str:
    """Return the first text in JSON that was cut off."""
    _, _, rest = stored.partition('"text":')
    _, _, text = rest.partition('"')
    # The text may be whole, or its last escape have been cut in two.
    for tried in (f'"{text}', *(f'"{text[: len(text) - cut]}"' for cut in range(7))):
        try:
            decoded_text = str(json.JSONDecoder().raw_decode(tried)[0])
            return decoded_text.encode("utf-8", "backslashreplace").decode()
        except ValueError:
            continue
    return ""
