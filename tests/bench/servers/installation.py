"""A SQLite installation that moves in, the servers that go on with it, and the versions that are to come."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.s3 import serving as s3_serving
from tests.served import ROOT, Served, Template, manage, postgres_url, run_on_postgres, with_database

SERVERS = 3
WORKERS = 2  # of each
READY_WITHIN = (
    300.0  # seconds for a new version with its migration, on a machine that is busy with all of this
)
STEP = '''"""A step of a version to come, which the version before can go on beside."""

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "{last}")]
    operations = [
        step(["ALTER TABLE sessions ADD COLUMN {name} TEXT", "CREATE TABLE {name}s (id INTEGER)"], [])
    ]
'''


class Moved(Template):
    """What moved in: all servers work on its database itself.

    A copy (`CREATE DATABASE … TEMPLATE`) would not do: PostgreSQL writes a counter's next ids ahead into its log, and a
    copy of the counter has no such entry. After a fail-over it would give ids anew that were given since.
    """

    def copy(self, folder: Path) -> str:
        folder.mkdir(parents=True)
        if (self.folder / "secret_key").exists():
            shutil.copy2(self.folder / "secret_key", folder)
        (folder / "static").symlink_to(self.folder / "static")
        return self.database


def moved_in(folder: Path, s3: dict[str, str]) -> tuple[Template, dict[str, str]]:
    """Fill a SQLite installation, move it to a new database and its files to S3.

    Returns what all servers begin from, and the messages with files, each with its file's digest.
    """
    here = folder / "sqlite"
    here.mkdir(mode=0o700)
    env = Template.environment(here, "")
    del env["DATABASE_URL"]
    run_module("tests.served_seed", env)
    manage("demo", "--anyway", "--days", "1", env=env)
    files = json.loads(run_module("tests.bench.servers.filling", env))
    name = f"signalbox_bench_{uuid.uuid4().hex[:8]}"
    run_on_postgres(f"CREATE DATABASE {name}")
    url = with_database(postgres_url() or "", name)
    say(manage("move_to", url, env=env).stdout)
    moved = manage("move_attachments", env=env | s3 | {"DATABASE_URL": url}).stdout
    say(moved)
    return Moved(here, name), files


def run_module(name: str, env: dict[str, str]) -> str:
    """Run a module of the tests to its end; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", name], cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def say(output: str) -> None:
    """Print a command's last line."""
    print(output.strip().splitlines()[-1], flush=True)


@contextmanager
def serving(
    template: Template, folder: Path, number: int, url: str, shared: dict[str, str]
) -> Iterator[list[Served]]:
    """Run servers on one database, whose public address is `url`; their logs are in their folders."""
    env = shared | {
        "SIGNALBOX_CREDENTIAL_KEYS": str(template.folder / "credential_keys"),
        "SIGNALBOX_AUDIT_KEY": str(template.folder / "audit_key"),
        "SIGNALBOX_PUBLIC_URL": url,
        "SIGNALBOX_TRUSTED_PROXIES": "127.0.0.1",
        "SIGNALBOX_RUNNER_POLL_TIMEOUT": "5",
    }
    servers: list[Served] = []
    with ExitStack() as closing, ExitStack() as stopping:  # all stop before their database goes
        for nth in range(number):
            server = Served(template, folder / f"server-{nth}", workers=WORKERS, env=dict(env))
            closing.callback(server.close)
            stopping.callback(server.stop)
            servers.append(server)
            server.ready_within = READY_WITHIN
            server.env["DATABASE_URL"] = servers[0].env["DATABASE_URL"]
            server.start()
        yield servers


@contextmanager
def bucket() -> Iterator[dict[str, str]]:
    """Run an S3; yields the settings of servers that keep their files there."""
    with s3_serving() as s3:
        yield s3.settings()


class Versions:
    """Copies of the program, each with a migration more than the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.roots = [ROOT]
        self.last = max(path.stem for path in (ROOT / "coordinator/migrations").glob("0*.py"))

    @property
    def newest(self) -> Path:
        return self.roots[-1]

    def next(self) -> Path:
        """Make a newer one."""
        number = len(self.roots)
        root = self.folder / f"version-{number}"
        for name in ("coordinator", "dashboard", "templates", "static"):
            shutil.copytree(self.newest / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "manage.py", root)
        name = f"9{number:03}_bench"
        text = STEP.format(last=self.last, name=f"bench_mood_{number}")
        (root / "coordinator/migrations" / f"{name}.py").write_text(text)
        self.last = name
        self.roots.append(root)
        return root
