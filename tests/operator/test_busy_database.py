"""A command that people run by hand waits for a busy database, and ends in a sentence where that takes too long."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.served import ROOT, Served, Template, postgres_url, with_database

pytestmark = pytest.mark.served
IMPATIENT = """
import sys, manage
from coordinator.operations import command_line
command_line.PATIENCE_MS = 200
sys.argv = ["manage.py", *sys.argv[1:]]
manage.main()
"""


@pytest.fixture
def at_rest(served_template: Template, tmp_path: Path) -> Iterator[Served]:
    """A data folder and a database that no server uses."""
    made = Served(served_template, tmp_path / "server", workers=1, env={})
    yield made
    made.close()


@contextlib.contextmanager
def written_to(served: Served) -> Iterator[None]:
    """Write to the database, and do not come to an end within the block."""
    if url := postgres_url():
        with psycopg.connect(with_database(url, served.database)) as other:
            other.execute("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE")
            yield
            other.rollback()
        return
    path = served.folder / "signalbox.sqlite3"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("BEGIN IMMEDIATE")
        yield
        file.execute("ROLLBACK")


def test_a_command_says_in_a_sentence_that_the_database_is_busy(at_rest: Served) -> None:
    words = ["apikey", "create", "of-a-busy-day", "--scope", "read"]
    with written_to(at_rest):
        done = subprocess.run(
            [sys.executable, "-c", IMPATIENT, *words],
            cwd=ROOT, env=at_rest.env, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("The database is busy: other programs wrote to it all the time.")
    assert len(done.stderr.splitlines()) == 1
    assert at_rest.sql("SELECT count(*) FROM api_keys WHERE name = 'of-a-busy-day'") == [(0,)]


def test_a_command_waits_longer_than_the_server_does(at_rest: Served) -> None:
    asked = (
        "SELECT current_setting('lock_timeout')"
        if postgres_url()
        else "SELECT timeout FROM pragma_busy_timeout"
    )
    look = (
        f"from django.db import connection as c; k = c.cursor(); k.execute({asked!r}); print(k.fetchone()[0])"
    )
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "-c", look],
        cwd=ROOT, env=at_rest.env, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split()[-1] in {"60000", "1min"}
