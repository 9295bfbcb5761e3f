"""A server at work goes on while another program stores what it likes in the database."""

from __future__ import annotations

import pytest

from tests.foreign.rows import LAST, Foreign, sound_rows, wide_rows
from tests.live.connections import Stream
from tests.served import Served, postgres_url

pytestmark = pytest.mark.served


def test_a_stream_tells_of_what_comes_after_any_value(served: Served) -> None:
    streams = [Stream(served), Stream(served, "/sse/sessions?session_id=ses_told")]
    with Foreign(served) as other:
        assert all(other.write(odd.table, odd.row) for odd in sound_rows())
    with Foreign(served) as other:
        taken = [other.write(odd.table, odd.row) for odd in wide_rows()]
    with Foreign(served) as other:
        assert all(other.write(odd.table, odd.row) for odd in sound_rows(last=True))
    # PostgreSQL's columns have types, and refuse most of them.
    assert any(taken) if postgres_url() else sum(taken) > len(taken) // 4
    for stream in streams:
        stream.wait(lambda frames: any(LAST in str(frame.data) for frame in frames))
        assert not stream.ended.is_set()
        stream.close()
    assert served.client().get("/health/ready").status_code == 200
    assert "Traceback" not in served.output()
