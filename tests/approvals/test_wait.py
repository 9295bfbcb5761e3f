"""The served program: an agent asks over HTTP and is held until somebody decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.approvals.cards import served_form
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = pytest.mark.served

URL = "/api/permission-requests"
BODY = {"plugin_id": "mind.x", "permission_type": "NetworkAccess", "justification": "To look something up"}


@pytest.fixture
def served(one_server: Served) -> Served:
    """One server for all tests here; each finds an empty inbox."""
    return one_server.emptied("permission_requests")


class Waiter(threading.Thread):
    """One held call; `answer` and `at` are set once it returns."""

    def __init__(self, client: httpx.Client, request_id: str, timeout: float = 30) -> None:
        super().__init__(daemon=True)
        self.client, self.path = client, f"{URL}/{request_id}/wait?timeout={timeout}"
        self.answer: httpx.Response | None = None
        self.at = 0.0

    def run(self) -> None:
        self.answer = self.client.get(self.path)
        self.at = time.monotonic()

    def told(self) -> dict[str, Any]:
        self.join(PATIENCE)
        assert self.answer is not None, "the call is still held"
        assert self.answer.status_code == 200, self.answer.text
        return self.answer.json()


@contextmanager
def held(served: Served, request_id: str, number: int = 1, **options: float) -> Iterator[list[Waiter]]:
    """Hold `number` calls; the block begins when the server has taken them."""
    waiters = [Waiter(served.client("agent"), request_id, **options) for _ in range(number)]
    for waiter in waiters:
        waiter.start()
    time.sleep(0.3)  # nothing tells from outside that a call is held; too short only makes the test easier
    yield waiters


def asked(served: Served, **changes: Any) -> str:
    answer = served.client("agent").post(URL, json=BODY | changes)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["request_id"])


def decide(
    served: Served, request_id: str, verdict: str = "approved", who: str = "approver", **form: str
) -> None:
    browser = served.sign_in(who)
    answer = browser.post("/ui/approvals/decide/", data=served_form(browser, request_id, verdict, **form))
    assert answer.status_code == 200, answer.text


def test_a_click_frees_the_agent_with_verdict_validity_and_reason(served: Served) -> None:
    request_id = asked(served)
    browser = served.sign_in("approver")
    form = served_form(browser, request_id, scope="everywhere", validity="1h", reason="go on")
    with held(served, request_id) as [waiter]:
        answered = browser.post("/ui/approvals/decide/", data=form, follow_redirects=False)
        told = waiter.told()
    assert answered.status_code == 302
    assert (told["status"], told["allowed"], told["approved_by"]) == ("approved", True, "approver")
    assert (told["validity"], told["reason"]) == ("1h", "go on")


def test_every_waiter_of_a_request_is_freed_and_no_other(served: Served) -> None:
    request_id, other = asked(served), asked(served, target_resource="elsewhere")
    with held(served, other) as [stays], held(served, request_id, 20) as waiters:
        decide(served, request_id, "denied")
        assert {waiter.told()["status"] for waiter in waiters} == {"denied"}
        assert stays.answer is None
        served.client("agent").delete(f"{URL}/{other}")
        assert stays.told()["status"] == "withdrawn"


def test_a_verdict_written_by_another_program_frees_the_agent_too(served: Served) -> None:
    request_id = asked(served)
    with held(served, request_id) as [waiter]:
        served.sql("UPDATE permission_requests SET status = 'denied' WHERE request_id = ?", (request_id,))
        assert waiter.told()["status"] == "denied"


def test_the_deadline_frees_the_agent_by_itself(served: Served) -> None:
    from datetime import UTC, datetime, timedelta

    deadline = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    request_id = asked(served, deadline=deadline)
    with held(served, request_id) as [waiter]:
        told = waiter.told()
    assert (told["status"], told["allowed"]) == ("expired", False)


def test_what_is_decided_already_is_answered_at_once(served: Served) -> None:
    request_id = asked(served)
    decide(served, request_id)
    began = time.monotonic()
    assert served.client("read").get(f"{URL}/{request_id}/wait").json()["status"] == "approved"
    assert time.monotonic() - began < 10  # a wait is held 30 s


def test_a_restart_answers_pending_and_the_next_wait_gets_the_verdict(served: Served) -> None:
    request_id = asked(served)
    with held(served, request_id) as [waiter]:
        served.stop()
        assert waiter.told()["status"] == "pending"
    served.start()
    with held(served, request_id) as [again]:
        decide(served, request_id)
        assert again.told()["status"] == "approved"


def test_a_wait_needs_a_key_that_may_look(served: Served) -> None:
    request_id = asked(served)
    assert served.client(None).get(f"{URL}/{request_id}/wait").status_code == 401
    assert served.client("read").get(f"{URL}/req_nope/wait").status_code == 404


@pytest.mark.parametrize("timeout", ["soon", "-1", "nan"])
def test_a_timeout_that_is_none_is_422(served: Served, timeout: str) -> None:
    request_id = asked(served)
    answer = served.client("agent").get(f"{URL}/{request_id}/wait?timeout={timeout}")
    assert answer.status_code == 422


def test_a_short_wait_ends_as_pending(served: Served) -> None:
    request_id = asked(served)
    answer = served.client("agent").get(f"{URL}/{request_id}/wait?timeout=0.2").json()
    assert (answer["status"], answer["allowed"]) == ("pending", False)
