"""`pytest -p tests.statements`: write down which SQL statements each test sends on PostgreSQL, and what it costs.

The server that DATABASE_URL names must have loaded pg_stat_statements, and nobody else may use it meanwhile. Each test
adds a line to the file that STATEMENTS names. `python -m tests.cover` reads it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

TICKS = os.sysconf("SC_CLK_TCK")
# How many values a list has, and how a savepoint or a cursor is named, makes no other statement.
LIST = re.compile(
    r"\(\$\d+(?:::\w+)?(?:, \$\d+(?:::\w+)?)*\)(?:, \(\$\d+(?:::\w+)?(?:, \$\d+(?:::\w+)?)*\))*"
)
NUMBER = re.compile(r"\$\d+|\d+\w*")


class StatementLog:
    """What was sent since the last `reset`, and the processor seconds since then."""

    def __init__(self, url: str, written: Path) -> None:
        self.connection = psycopg.connect(url, autocommit=True, dbname="postgres")
        self.connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        self.server = int(Path(self._setting("data_directory"), "postmaster.pid").read_text().split()[0])
        self.written = written
        self.began = 0.0

    def _setting(self, name: str) -> str:
        row = self.connection.execute("SELECT current_setting(%s)", [name]).fetchone()
        assert row is not None
        return str(row[0])

    def reset(self) -> None:
        self.connection.execute("SELECT pg_stat_statements_reset()")
        self.began = self._seconds()

    def write(self, test: str) -> None:
        seconds = self._seconds() - self.began
        rows = self.connection.execute("SELECT query FROM pg_stat_statements WHERE toplevel").fetchall()
        sent = {without_numbers(text) for (text,) in rows if "pg_stat_statements" not in text}
        with self.written.open("a") as file:
            file.write(json.dumps({"test": test, "seconds": round(seconds, 2), "sent": sorted(sent)}) + "\n")

    def _seconds(self) -> float:
        return seconds_of_tree(os.getpid()) + seconds_of_tree(self.server)


def without_numbers(text: str) -> str:
    """Return a statement without what differs between two sendings of it."""
    return NUMBER.sub("?", LIST.sub("(?)", " ".join(text.split())))


def seconds_of_tree(process: int) -> float:
    """Return the processor seconds of a process and its children, dead ones too that their parents waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS + sum(seconds_of_tree(int(child)) for child in children)


class StatementPlugin:
    """Writes a test's statements when it is over, its clean-up included. What a whole run needs counts for no test."""

    def __init__(self, statements: StatementLog) -> None:
        self.statements = statements

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.statements.reset()
        result = yield
        self.statements.write(item.nodeid)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        result = yield
        if fixturedef.scope == "session":
            self.statements.reset()
        return result


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    config.pluginmanager.register(
        StatementPlugin(StatementLog(os.environ["DATABASE_URL"], Path(os.environ["STATEMENTS"])))
    )
