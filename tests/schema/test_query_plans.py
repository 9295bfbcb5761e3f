"""No page and no job reads all of a table that grows with what agents do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from coordinator.operations import jobs
from tests.schema.query_plans import Recorder, recorded
from tests.walk.crawl import pages_from

pytestmark = pytest.mark.django_db(transaction=True)

FEWEST_PAGES, FEWEST_STATEMENTS = 45, 350  # fewer, and the walk has lost its way
# Table, a part of the statement, and why it may read all of the table.
ALLOWED = [
    (
        "sessions",
        'SELECT "sessions"."status" AS "status", COUNT(',
        "one row for hundreds of events, by an index alone",
    ),
    (
        "sbx_files",
        "LIKE",
        "a part of a path that a person looks for; one short row a file",
    ),
    (
        "usage_days",
        "SELECT u.id, ",
        "once an hour, in a thread of its own, without a lock; a row a session and day",
    ),
    (
        "chat_messages",
        "FROM chat_messages m WHERE NOT EXISTS",
        "what people and agents say to each other, by its ids",
    ),
    (
        "event_context",
        '"event_context"."extra"::text LIKE',
        "100 sessions' first events; the demo has no more",
    ),
    (
        "events",
        '"event_context"."extra"::text LIKE',
        "the same: for as many sessions a walk of the demo's few events may be planned",
    ),
    ("message_parts", "", "pieces of messages that are not whole yet"),
    ("session_notes", "", "what people wrote to sessions"),
    ("notification_log", "LIMIT", "one row a message to a person, every ten minutes"),
    (
        "idempotency_keys",
        "LIMIT",
        "a day of them, every ten minutes; an index would slow each batch",
    ),
    ("changes", "SELECT id FROM changes WHERE at >= ", "no further than what is then deleted"),
    ("sbx_chat_search", "FROM chat_messages m WHERE NOT EXISTS", "the same"),
]


class Walker:
    """A client for the crawl that notes which page sends which statements."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder

    def get(self, address: str, *, follow_redirects: bool) -> Any:
        self._recorder.sender = address
        response = self._client.get(address, follow=follow_redirects)
        text = "" if response.streaming else response.content.decode(errors="replace")
        return SimpleNamespace(headers=response.headers, status_code=response.status_code, text=text)


def test_no_page_and_no_job_reads_all_of_a_large_table() -> None:
    call_command("demo", "--anyway", "--days", "1", "--verbosity=0")
    admin = User.objects.create_superuser("walker", password="walk-7-words")
    admin.groups.add(*Group.objects.filter(name="admin"))
    client = Client()
    client.force_login(admin)
    with recorded() as recorder:
        pages = pages_from(Walker(client, recorder), "/ui/", "/admin/")  # type: ignore[arg-type]
        for job in jobs.JOBS:
            recorder.sender = job.name
            job.work(timezone.now())
    assert len(pages) >= FEWEST_PAGES
    assert len(recorder.statements) >= FEWEST_STATEMENTS
    scans = [
        f"{sender} scans {table}: {sql[:1500]}"
        for sender, table, sql in recorder.scans()
        if not any(table == name and part in sql for name, part, _why in ALLOWED)
    ]
    assert not scans, "\n".join(scans)
