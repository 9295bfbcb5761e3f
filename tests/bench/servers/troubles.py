"""What happens to servers, the balancer and the database, one after the other, until it is enough."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from tests.bench.machine import tree
from tests.bench.servers.balancer import Balancer
from tests.bench.servers.installation import Versions
from tests.bench.servers.postgres import Given
from tests.served import Served

GRACE = 6.0  # seconds after a trouble in which something may still be refused: a refusal takes up to 4


class Troubles:
    """`windows` is when each was: what is refused outside of them is a fault."""

    def __init__(
        self, servers: list[Served], balancer: Balancer, database: Given, versions: Versions
    ) -> None:
        self.servers, self.balancer, self.versions = servers, balancer, versions
        self.happened: Counter[str] = Counter()
        self.windows: list[tuple[float, float]] = []
        self.kinds: list[Callable[[], None]] = [self.replace, self.kill, *database.troubles()]
        self.kinds[4:4] = [self.replace, self.kill_worker, self.switch]
        self.turn = count()

    def go_on(self, until: float, between: float) -> None:
        """Make trouble after trouble, with so many seconds of peace before each."""
        for nth in count():
            time.sleep(between)
            if time.monotonic() > until:
                return
            trouble, began = self.kinds[nth % len(self.kinds)], time.monotonic()
            trouble()
            self.windows.append((began, time.monotonic()))
            self.happened[trouble.__name__] += 1
            print(f"{trouble.__name__} {time.monotonic() - began:.1f} s", flush=True)

    def excused(self, at: float) -> bool:
        """Say whether there was trouble then, or had just been."""
        return any(began <= at <= ended + GRACE for began, ended in self.windows)

    def someone(self) -> Served:
        """Return each server in turn."""
        return self.servers[next(self.turn) % len(self.servers)]

    def kill(self) -> None:
        """Kill a server with all its processes at one moment, and start it again."""
        server = self.someone()
        assert server.process is not None
        for pid in tree(server.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.stop(signal.SIGKILL)
        server.start()

    def kill_worker(self) -> None:
        """Kill one worker, and wait until another is in its place."""
        server = self.someone()
        killed = server.all_worker_pids()[0]
        os.kill(killed, signal.SIGKILL)
        while killed in server.all_worker_pids():
            time.sleep(0.05)

    def replace(self) -> None:
        """Stop a server that is not of the newest version, and start that in its place; all are: make a newer one."""
        old = [one for one in self.servers if one.root != self.versions.newest]
        if not old:
            old = self.servers
            self.versions.next()
        server = old[0]
        server.stop()
        server.root, server.options = self.versions.newest, ()
        server.start()

    def switch(self) -> None:
        """Put HAProxy in nginx's place, or the other way round."""
        self.balancer.switch()
