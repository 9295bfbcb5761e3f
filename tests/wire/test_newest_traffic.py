"""The newest coordinator's recording, with its own runner and persistent executors, scenario by scenario."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.served import Served
from tests.wire.player import OF_HEAD, Played
from tests.wire.recording import HEAD, exchanges, frames, scenarios
from tests.wire.test_recorded_traffic import (
    WORKERS,
    by_session,
    not_in_order,
    play_side_by_side,
    said,
    seen,
    without_repeats,
)

pytestmark = pytest.mark.served

_played: dict[int, Played] = {}
# In these the original tells of what did not happen so: 03 ends a run before it begins, 06 and 07 call a session
# idle that is being stopped, 15 keeps one running whose executor said its end, 20 leaves out most fields.
TOLD_OTHERWISE = {"03", "06", "07", "15", "20"}


@pytest.fixture(params=WORKERS, ids=["one-worker", "three-workers"])
def played(request: pytest.FixtureRequest, serve: Callable[..., Served]) -> Played:
    """The whole recording, played once for each number of workers."""
    if not _played:
        _played.update(play_side_by_side(serve, OF_HEAD, SIGNALBOX_RUN_NO_MATCH_TIMEOUT="6"))
    return _played[request.param]


@pytest.mark.parametrize("scenario", scenarios(HEAD))
def test_every_answer_is_the_recorded_one(played: Played, scenario: str) -> None:
    assert not played.faults[scenario]
    assert any(e.scenario == scenario for e in exchanges(HEAD))


def test_frames_come_in_the_recorded_order(played: Played) -> None:
    told = [f for f in frames(HEAD) if f.stream == "sse1" and f.scenario not in TOLD_OTHERWISE]
    of_others = {
        seen(frame, played)[1] for frame in frames(HEAD) if frame.scenario in TOLD_OTHERWISE - {"20"}
    }
    recorded = by_session([seen(frame, played) for frame in told])
    ours = by_session([said(event, data) for _, event, data in played.streams["sse1"].frames])
    for session_id, expected in recorded.items():
        if session_id in played.ids.ours.values() and session_id not in of_others:
            missing = not_in_order(without_repeats(expected), ours[session_id])
            assert missing is None, f"{session_id}: {missing} is not in {ours[session_id]}"


def test_results_are_told_with_their_fields(played: Played) -> None:
    told = [data["data"] for _, event, data in played.streams["sse1"].frames if event == "event"]
    results = [event["result_data"] for event in told if event["event_type"] == "result"]
    assert {"output": "ok"} in results
