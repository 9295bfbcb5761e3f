"""While the database is away each door says so in its own form, and afterwards all goes on without a restart."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import rules
from tests.patience import PATIENCE
from tests.served import Served, postgres_url, run_on_postgres

pytestmark = [
    pytest.mark.served,
    pytest.mark.skipif(postgres_url() is None, reason="a file does not go away from who has it open"),
]
KEPT = 5.5  # seconds after which no answer about a key is kept any more (edge.auth)


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """A server of its own: what these tests do to it would show in others."""
    return serve()


@contextlib.contextmanager
def away(served: Served) -> Iterator[None]:
    """End all connections of the server's database, and let nobody in."""
    run_on_postgres(f"ALTER DATABASE {served.database} ALLOW_CONNECTIONS false")
    try:
        cut(served)
        yield
    finally:
        run_on_postgres(f"ALTER DATABASE {served.database} ALLOW_CONNECTIONS true")


def event(session_id: str, text: str) -> dict[str, object]:
    content = [{"type": "text", "text": text}]
    common = {"event_type": "message", "session_id": session_id, "timestamp": "2026-01-01T00:00:00Z"}
    return common | {"role": "assistant", "content": content}


@contextlib.contextmanager
def only_read(served: Served) -> Iterator[None]:
    """Have the database refuse writes, as a server does that another one takes over from."""
    run_on_postgres(f"ALTER DATABASE {served.database} SET default_transaction_read_only = on")
    try:
        cut(served)
        yield
    finally:
        run_on_postgres(f"ALTER DATABASE {served.database} RESET default_transaction_read_only")


def cut(served: Served) -> None:
    """End all connections of the server's database, the test's own among them."""
    served.close_connections()
    run_on_postgres(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{served.database}'"
    )


def test_every_door_answers_503_while_the_database_is_away(served: Served) -> None:
    machine, person = served.client(key="all"), served.sign_in("admin")
    run = machine.post("/runs", json={"type": "start_session", "prompt": "Go"}).json()
    posts = f"/sessions/{run['session_id']}/events"
    asks: dict[str, Callable[[], httpx.Response]] = {
        "event": lambda: machine.post(posts, json=event(run["session_id"], "lost")),
        "events": lambda: machine.post("/api/events", json={"events": [event(run["session_id"], "lost")]}),
        "access": lambda: machine.post("/api/access/check", json={"server": "a", "tool": "b"}),
        "logs": lambda: machine.post("/v1/logs", json={"resourceLogs": []}),
        "work": lambda: machine.get("/runner/runs", params={"runner_id": "r"}),
        "stream": lambda: machine.get("/sse/sessions"),
        "scrape": lambda: machine.get("/metrics"),
        "ready": lambda: machine.get("/health/ready"),
        "REST": lambda: machine.get("/runs"),
        "page": lambda: person.get("/ui/approvals/"),
        "live": lambda: person.get("/ui/live/"),
        "sign-in": lambda: served.client(key=None).get("/ui/sign-in/"),
    }
    with away(served):
        time.sleep(KEPT)
        found = {name: ask() for name, ask in asks.items()}
    assert {name: answer.status_code for name, answer in found.items()} == dict.fromkeys(asks, 503)
    assert [name for name, answer in found.items() if int(answer.headers.get("Retry-After", 0)) < 1] == []


def test_what_was_answered_is_kept_and_all_goes_on_afterwards(served: Served) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask"}, {"tool": "Edit", "verdict": "deny"})
    machine, person, claude = served.client(key="all"), served.sign_in("admin"), Claude(served, wait="1")
    session_id = machine.post("/runs", json={"type": "start_session", "prompt": "Go"}).json()["session_id"]
    posts = f"/sessions/{session_id}/events"
    kept = [f"n{number}" for number in range(20) if machine.post(posts, json=event(session_id, f"n{number}"))]
    with away(served):
        time.sleep(KEPT)
        assert claude.before(claude.new_call("Bash", {"command": "ls"}))["permissionDecision"] == "ask"
        assert claude.before(claude.new_call("Edit", {}))["permissionDecision"] == "deny"
        workers = served.all_worker_pids()
    until = time.monotonic() + PATIENCE
    while machine.post(posts, json=event(session_id, "after")).status_code != 201:
        assert time.monotonic() < until, "events are still refused"
    assert person.get("/ui/").status_code == 200
    assert served.worker_pids() == workers
    with only_read(served):
        reads = {
            "page": lambda: person.get("/ui/approvals/"),
            "REST": lambda: machine.get("/runs"),
            "scrape": lambda: machine.get("/metrics"),
        }
        writes = {
            "event": lambda: machine.post(posts, json=event(session_id, "refused")),
            "run": lambda: machine.post("/runs", json={"type": "start_session", "prompt": "Refused"}),
            "brake": lambda: person.post(
                "/ui/brake/put-on/", data={"reach": "everything", "name": "", "reason": "Refused"}
            ),
        }
        assert {name: ask().status_code for name, ask in reads.items()} == dict.fromkeys(reads, 200)
        answers = {name: ask() for name, ask in writes.items()}
        assert {name: one.status_code for name, one in answers.items()} == dict.fromkeys(writes, 503)
        assert all("Retry-After" in one.headers for one in answers.values())
    assert machine.post(posts, json=event(session_id, "at once")).status_code == 201
    assert served.worker_pids() == workers
    told = str(served.sql("SELECT content FROM events WHERE session_id = ?", (session_id,)))
    assert [text for text in kept if f"'{text}'" not in told and f'"{text}"' not in told] == []
