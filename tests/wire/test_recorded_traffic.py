"""The recording, scenario by scenario, against the program as people run it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.served import Served
from tests.wire.player import LEFT_OUT, OF_SEED, Played, Player, Script
from tests.wire.recording import RecordedFrame, exchanges, frames, scenarios

pytestmark = pytest.mark.served

SCENARIOS = [name for name in scenarios() if name != "13"]
_played: dict[int, Played] = {}
WORKERS = (1, 3)


@pytest.fixture(params=WORKERS, ids=["one-worker", "three-workers"])
def played(request: pytest.FixtureRequest, serve: Callable[..., Served]) -> Played:
    """The whole recording, played once for each number of workers."""
    if not _played:
        _played.update(play_side_by_side(serve, OF_SEED, SIGNALBOX_RUN_NO_MATCH_TIMEOUT="3"))
    return _played[request.param]


def play_side_by_side(serve: Callable[..., Served], script: Script, **env: str) -> dict[int, Played]:
    """Play a recording at one server for each of WORKERS, at the same time: most of it is waiting."""
    env |= {"SIGNALBOX_RUNNER_POLL_TIMEOUT": "1", "SIGNALBOX_LIFECYCLE_INTERVAL": "0.5"}
    servers = [serve(workers=workers, **env) for workers in WORKERS]
    with ThreadPoolExecutor(len(WORKERS)) as threads:
        return dict(
            zip(WORKERS, threads.map(lambda served: Player(served, script).play(), servers), strict=True)
        )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_answer_is_the_recorded_one(played: Played, scenario: str) -> None:
    assert not played.faults[scenario]
    assert any(e.scenario == scenario for e in exchanges() if e.seq not in LEFT_OUT)


def test_frames_come_in_the_recorded_order(played: Played) -> None:
    # In 08 our stop reaches the run that the original could not stop, and changes what follows; 13 is not played.
    told = [frame for frame in frames() if frame.stream == "sse1" and frame.scenario not in {"08", "13"}]
    recorded = by_session([seen(frame, played) for frame in told])
    ours = by_session([said(event, data) for _, event, data in played.streams["sse1"].frames])
    for session_id, expected in recorded.items():
        if session_id in played.ids.ours.values() or session_id in ours:
            missing = not_in_order(without_repeats(expected), ours[session_id])
            assert missing is None, f"{session_id}: {missing} is not in {ours[session_id]}"


def test_frames_that_were_not_recorded_are_news_of_sessions_and_starts(played: Played) -> None:
    recorded = {kind for kind, *_ in (seen(frame, played) for frame in frames())}
    assert {event for _, event, _ in played.streams["sse1"].frames} == recorded


def test_a_filtered_stream_shows_its_session_alone(played: Played) -> None:
    (_, event, data), *rest = played.streams["sse2"].frames
    (session,) = data["sessions"]
    assert (event, session["status"]) == ("init", "finished")
    # What was committed as the stream opened may be told beside; of another session, never.
    assert {said(event, data)[1] for _, event, data in rest} <= {session["session_id"]}


def test_a_stream_without_init_and_one_that_resumes_start_silent(played: Played) -> None:
    assert played.streams["sse3"].frames == []
    assert played.streams["sse4"].frames == []


Shown = tuple[str, str, Any]


def seen(frame: RecordedFrame, played: Played) -> Shown:
    """A recorded frame with our ids, down to what is compared."""
    return said(frame.event, played.ids.put(frame.data))


def said(event: str, data: Any) -> Shown:
    """A frame as what, of which session, and what it says."""
    if event in {"session_created", "session_updated"}:
        return event, data["session"]["session_id"], sorted(data["session"])
    if event == "event":
        return event, data["data"]["session_id"], (data["data"]["event_type"], data["data"]["content"])
    return event, data.get("session_id", ""), sorted(data)


def by_session(shown: list[Shown]) -> dict[str, list[Shown]]:
    grouped: dict[str, list[Shown]] = defaultdict(list)
    for one in shown:
        grouped[one[1]].append(one)
    return grouped


def without_repeats(shown: list[Shown]) -> list[Shown]:
    """The original broadcast a session again when nothing of it had changed; and a start we have written before."""
    kept: list[Shown] = []
    for one in shown:
        if kept[-1:] != [one] and not (one[0] == "event" and one[2][0] == "session_start"):
            kept.append(one)
    return kept


def not_in_order(expected: list[Shown], ours: list[Shown]) -> Shown | None:
    """Return the first of `expected` that does not follow the one before it in `ours`."""
    rest = iter(ours)
    return next((one for one in expected if one not in rest), None)
