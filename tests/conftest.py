"""Fixtures named for the thing they give."""

from __future__ import annotations

import functools
import gc
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, TransactionTestCase
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from coordinator.actions.upkeep.pruning import BodyPruningProgress
from coordinator.identity import browser_secrets
from tests import engines
from tests.browser import (  # noqa: F401 - fixtures for every test
    RUNNING,
    chromium,
    leave_if_done,
    person_at,
)
from tests.served import (
    PROOF,
    Served,
    Template,
    connections_let_in,
    postgres_url,
    running,
    shared_template,
)
from tests.shared_server import SharedServer
from tests.standing import Standing


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A browser runs for as many tests as follow each other."""
    leave_if_done(item, nextitem)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Look for no garbage while thousands of tests are collected, which stay: that is half of the work."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# The files that take longest: they go first, so that all processes end together.
LONGEST = (
    # in a browser
    "walk/test_every_page.py",
    "push/test_in_a_browser.py",
    "sessions/test_in_a_browser.py",
    # others: these wait for what a recording waited for,
    "wire/test_recorded_traffic.py",
    "wire/test_newest_traffic.py",
    "wire/test_many_runners.py",
    # an image is built, servers are restarted,
    "operator/test_container.py",
    "operator/test_wheel.py",
    "server/test_listening.py",
    "importing/test_sent_transcripts.py",
    "schema/test_history.py",
    # and these ask for thousands of pages
    "foreign/test_any_value.py",
    "admin/test_every_table.py",
    "schema/test_query_plans.py",
    "sessions/test_page.py",
    "claude_code/test_deciding.py",
)


# What a file says whose tests drive a browser or programs of others.
DRIVES = re.compile(r"playwright|chromium|person_at|real_agent")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread of which the command asks for no test: reading all of them takes each process ten seconds.

    What DRIVES does not find is refused where all is read (below).
    """
    asked = config.getoption("markexpr")
    if not asked:
        return None
    if "not one_engine" in asked.split(" and ") and engines.one_is_enough_for_all_of(collection_path):
        return True
    if set(re.findall(r"\w+", asked)) - {"and", "or", "not", "browser", "real_agent"}:
        return None
    if eval(asked, {"__builtins__": {}}, {"browser": False, "real_agent": False}):
        return None
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if is_test and not _text_drives(collection_path) else None


def _is_driving(item: pytest.Item) -> bool:
    return any(item.iter_markers("browser")) or any(item.iter_markers("real_agent"))


@functools.cache
def _text_drives(path: Path) -> bool:
    return DRIVES.search(path.read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes for folders of tests; none beside this one for the files that somebody names.

    Two a core, since tests that talk to a served program wait for a third of their time; on PostgreSQL no more than it
    lets in, since each process has a server that opens a dozen connections, and some tests start three.
    """
    if any(".py" in argument for argument in config.args):
        return 0
    most = min(8, 2 * len(os.sched_getaffinity(0)))
    return min(most, max(1, connections_let_in() // 50)) if postgres_url() else most


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In parallel, a file's tests stay in one process: they share a server. Not so with `--dist worksteal`."""
    if config.getoption("dist") == "worksteal":
        return None
    from tests.file_scheduling import FileScheduling

    config.option.loadscopereorder = False  # the order below
    return FileScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what one engine is enough for, what needs a browser, and what talks to a served program.

    In parallel, sort by `_turns` what the command's expression selects, after pytest-django sorted it.
    """
    for item in items:
        if engines.one_is_enough(item):
            item.add_marker("one_engine")
        fixtures = frozenset(getattr(item, "fixturenames", ()))
        if "chromium" in fixtures:
            item.add_marker("browser")
        if fixtures & engines.SERVED:
            item.add_marker("served")
        if _is_driving(item) and not _text_drives(item.path):
            raise pytest.UsageError(f"{item.nodeid} drives other programs, and DRIVES does not find it.")
    result = yield
    if "PYTEST_XDIST_WORKER" in os.environ:
        turns = _turns(items)
        items.sort(key=lambda item: turns[item.path])  # stable
    return result


def _turns(items: list[pytest.Item]) -> dict[Path, tuple[bool, float]]:
    """Return a sort key for each file of tests: first LONGEST, then files with and without servers by turns.

    A test with a server waits for a third of its time: with one beside it that has none, both cores are busy. Files
    of both kinds are spread evenly, so that they are used up together.
    """
    has_server: dict[Path, bool] = {}
    for item in items:
        has_server[item.path] = has_server.get(item.path, False) or bool(item.get_closest_marker("served"))
    turns: dict[Path, tuple[bool, float]] = {}
    for kind in (True, False):
        paths = [path for path, served in has_server.items() if served is kind]
        turns |= {
            path: (not f"{path}".endswith(LONGEST), place / len(paths)) for place, path in enumerate(paths)
        }
    return turns


@pytest.fixture
def unpruned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pruning begins with the first event: earlier tests of this process have pruned, too."""
    monkeypatch.setattr(BodyPruningProgress, "upto", 0)
    monkeypatch.setattr(BodyPruningProgress, "before", None)


@pytest.fixture(autouse=True, scope="session")
def force_login_with_proof() -> Iterator[None]:
    """`client.force_login` gives what a browser has after signing in: the cookie and the proof beside it."""
    plain = Client.force_login

    def force_login(client: Client, *args: Any, **options: Any) -> None:
        plain(client, *args, **options)
        session = client.session
        browser_secrets.bind_or_unbind_session_browser(session, PROOF, timezone.now())
        session.save()
        client.defaults["HTTP_X_SIGNALBOX_PROOF"] = PROOF

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "force_login", force_login)
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """pytest-django's test database; a test that commits leaves it as it was (tests/standing.py)."""
    with django_db_blocker.unblock():
        standing = Standing()
    with pytest.MonkeyPatch.context() as patch:
        # Where Django flushes: after tests with `django_db(transaction=True)`, `transactional_db`, `live_server`.
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda self: standing.restore())
        yield
    RUNNING.close()  # under Playwright's loop Django would not drop the database


@pytest.fixture(scope="session")
def served_template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    """A migrated, seeded data folder and database that servers are copied from."""
    of_this_process = tmp_path_factory.getbasetemp()
    in_parallel = "PYTEST_XDIST_WORKER" in os.environ
    with shared_template(
        (of_this_process.parent if in_parallel else of_this_process) / "served-template"
    ) as template:
        yield template


@pytest.fixture
def serve(served_template: Template, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """A function that starts a server: `serve(workers=3, SIGNALBOX_RUNNER_POLL_TIMEOUT="5")`."""
    with ExitStack() as servers:
        started: list[Served] = []

        def start(*, workers: int = 2, **env: str) -> Served:
            folder = tmp_path / f"server-{len(started)}"
            started.append(servers.enter_context(running(served_template, folder, workers=workers, **env)))
            return started[-1]

        yield start


@pytest.fixture(scope="module")
def one_server(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with two workers for all tests of a module, which clean up for each other (`emptied`)."""
    with running(served_template, tmp_path_factory.mktemp("one") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def shared_server(
    served_template: Template, tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker
) -> Iterator[SharedServer]:
    """The server that this process's tests share."""
    shared = SharedServer(served_template, tmp_path_factory.mktemp("shared"), django_db_blocker)
    yield shared
    shared.close()


@pytest.fixture
def served(shared_server: SharedServer) -> Iterator[Served]:
    """A server with two workers, with the seeded rows and no others. It has served other tests before."""
    served = shared_server.fresh()
    yield served
    while served.clients:
        served.clients.pop().close()
