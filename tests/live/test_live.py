"""The stream of pages: `/ui/live/`."""

from __future__ import annotations

import httpx
import pytest

from tests.live.connections import Stream, connect, message, post
from tests.served import Served

pytestmark = pytest.mark.served


@pytest.fixture(scope="module")
def viewer(shared: Served) -> str:
    """The cookie header of a signed-in viewer."""
    return cookie_of(shared.sign_in("viewer"))


@pytest.fixture(scope="module")
def admin(shared: Served) -> str:
    """The cookie header of a signed-in admin."""
    return cookie_of(shared.sign_in("admin"))


def cookie_of(client: httpx.Client) -> str:
    return f"signalbox_session={client.cookies['signalbox_session']}"


def live(served: Served, topics: str, cookie: str, last: str = "", *, to: int | None = None) -> Stream:
    return Stream(served, f"/ui/live/?topics={topics.replace(' ', '+')}&last={last}", to=to, Cookie=cookie)


def status_of(served: Served, query: str, cookie: str = "") -> int:
    connection = connect(served)
    connection.request("GET", f"/ui/live/{query}", headers={"Cookie": cookie} if cookie else {})
    return connection.getresponse().status


def test_a_signal_says_what_changed_on_both_workers(shared: Served, session_id: str, viewer: str) -> None:
    for pid in shared.worker_pids():
        stream = live(shared, f"events:{session_id} runs", viewer, to=pid)
        stream.wait(lambda frames: frames and frames[0].event == "ready")
        post(connect(shared), f"/sessions/{session_id}/events", message(session_id, "x"))
        signal = stream.wait(lambda frames: len(frames) > 1 and frames[1])
        assert signal.event == "signal"
        assert signal.change_id == signal.data["id"]
        assert {k: v for k, v in signal.data.items() if k not in ("id", "at", "key", "count")} == {
            "topic": "events",
            "parent": session_id,
            "op": "insert",
        }
        stream.close()


def test_many_changes_of_one_thing_are_one_signal(shared: Served, session_id: str, viewer: str) -> None:
    stream = live(shared, f"events:{session_id}", viewer)
    stream.wait(lambda frames: frames)
    post(connect(shared), "/api/events", [message(session_id, str(n)) for n in range(500)])
    stream.wait(lambda frames: sum(f.data["count"] for f in frames if f.event == "signal") == 500)
    assert len(stream.frames) < 20
    stream.close()


def test_a_page_is_told_only_what_it_asked_for(
    shared: Served, session_id: str, sessions: object, viewer: str
) -> None:
    other = str(sessions())  # type: ignore[operator]
    stream = live(shared, f"events:{session_id}", viewer)
    stream.wait(lambda frames: frames)
    post(connect(shared), f"/sessions/{other}/events", message(other, "not for this page"))
    post(connect(shared), f"/sessions/{session_id}/events", message(session_id, "for this page"))
    stream.wait(lambda frames: len(frames) > 1)
    assert {frame.data["parent"] for frame in stream.frames[1:]} == {session_id}
    stream.close()


def test_a_page_that_was_hidden_is_told_what_it_missed(shared: Served, session_id: str, viewer: str) -> None:
    before = live(shared, f"events:{session_id}", viewer)
    ready = before.wait(lambda frames: frames and frames[0])
    before.close()
    post(connect(shared), f"/sessions/{session_id}/events", message(session_id, "missed"))
    after = live(shared, f"events:{session_id}", viewer, ready.id)
    signal = after.wait(lambda frames: frames and frames[0])
    assert (signal.event, signal.data["parent"]) == ("signal", session_id)
    after.close()


def test_a_page_from_long_ago_is_told_to_load_afresh(shared: Served, viewer: str) -> None:
    stream = live(shared, "sessions", viewer, "99999999999")
    assert stream.wait(lambda frames: frames and frames[0]).event == "reset"
    stream.close()


def test_who_is_not_signed_in_sees_nothing(shared: Served) -> None:
    assert status_of(shared, "?topics=sessions") == 401
    assert status_of(shared, "?topics=sessions", "signalbox_session=made-up") == 401


def test_keys_and_users_are_for_admins(shared: Served, viewer: str, admin: str) -> None:
    assert status_of(shared, "?topics=users", viewer) == 403
    assert status_of(shared, "?topics=sessions+api_keys", viewer) == 403
    assert status_of(shared, "?topics=users+api_keys", admin) == 200


@pytest.mark.parametrize(
    "query", ["", "?topics=", "?topics=secrets", "?topics=" + "+".join(f"events:{n}" for n in range(40))]
)
def test_topics_must_be_known_and_few(shared: Served, viewer: str, query: str) -> None:
    assert status_of(shared, query, viewer) == 400


def test_who_loses_the_role_loses_the_stream(shared: Served) -> None:
    cookie = cookie_of(shared.sign_in("approver2"))
    stream = live(shared, "sessions", cookie)
    stream.wait(lambda frames: frames)
    groups = shared.sql(
        "SELECT user_id, group_id FROM auth_user_groups WHERE user_id ="
        " (SELECT id FROM auth_user WHERE username = 'approver2')"
    )
    shared.sql("DELETE FROM auth_user_groups WHERE user_id = ?", (groups[0][0],))
    assert stream.ended.wait(60)
    assert status_of(shared, "?topics=sessions", cookie) == 403
