"""`GET /health/ready`: whether this worker is ready for requests. For load balancers; no key is needed.

`/health` says only that a worker answers. This endpoint checks: 200, or 503 with the reasons. It makes one small
database query, and checks at most once a second, however often it is called.
"""

from __future__ import annotations

import asyncio
import time

from django.db import Error as DatabaseError
from django.db import connection

from coordinator.edge.http.messages import send_json
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.feed.reader import ChangeFeed
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.operations import startup

READINESS_CACHE_SECONDS = 1.0  # seconds an answer holds
DATABASE_WITHIN = 2.0
FEED_BEHIND = 5.0  # seconds a change may wait to be noticed
FEED_SILENT = 10.0  # … and the thread may go without a look; a busy event loop may hold it up for five
WRITER_STUCK = 10.0  # callers are refused after four


class ReadinessEndpoint:
    """What is asked, and what was found a moment ago. One a process."""

    stopping = False

    def __init__(self, feed: ChangeFeed, writer: GroupWriter, threads: EdgeThreads) -> None:
        self._feed, self._writer, self._threads = feed, writer, threads
        self._problems: list[str] = []
        self._until = 0.0
        self._migrated = False
        self._looking = asyncio.Lock()

    async def answer_readiness(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer 200 `{"status": "ready"}`, or 503 with `reasons`."""
        async with self._looking:
            if time.monotonic() >= self._until:
                self._problems = await self.collect_readiness_problems()
                self._until = time.monotonic() + READINESS_CACHE_SECONDS
        reasons = ["The server is stopping."] if self.stopping else self._problems
        if reasons:
            await send_json(send, 503, {"status": "not ready", "reasons": reasons}, (b"retry-after", b"1"))
        else:
            await send_json(send, 200, {"status": "ready"})

    async def collect_readiness_problems(self) -> list[str]:
        reasons = self.describe_stuck_threads()
        try:
            async with asyncio.timeout(DATABASE_WITHIN):
                reasons += await self._threads.run_in_thread(self.find_database_problems)
        except TimeoutError:
            reasons.append(f"The database did not answer within {DATABASE_WITHIN:g} seconds.")
        except DatabaseError:
            reasons.append("The database cannot be read.")
        return reasons

    def describe_stuck_threads(self) -> list[str]:
        reasons = []
        if self._writer.seconds_stuck() > WRITER_STUCK:
            reasons.append("The writer of events is stuck.")
        if self._feed.seconds_since_poll() > FEED_SILENT:
            reasons.append("The feed has stopped: open pages are not updated.")
        return reasons

    def find_database_problems(self) -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT at FROM changes WHERE id > %s ORDER BY id LIMIT 1", [self._feed.position])
            unread_change = cursor.fetchone()
        reasons = []
        if unread_change and (late := time.time() - unread_change[0] / 1000) > FEED_BEHIND:
            reasons.append(f"The feed is {late:.0f} seconds behind.")
        if not self._migrated:
            # Once done it stays done: a worker never outlives its code.
            lacking = startup.migrations_on_disk() - startup.applied_migrations()
            self._migrated = not lacking
            if lacking:
                reasons.append(
                    f"The database lacks {len(lacking)} migrations. Run `signalbox manage migrate`."
                )
        return reasons
