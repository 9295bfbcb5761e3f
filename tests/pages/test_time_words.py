"""Times and lengths read the same wherever they are drawn: by the server, or in the browser (time-words.js)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coordinator.lib.times import (
    format_duration,
    format_relative_time,
    format_rough_duration,
    format_time_ago,
    format_whole_second_duration,
)
from tests.served import ROOT

NOW = datetime(2026, 9, 23, 12, tzinfo=UTC)
SECONDS = [
    *(
        0,
        0.0004,
        0.0005,
        0.0015,
        0.0123,
        0.34,
        0.9994,
        0.9996,
        1,
        1.04,
        1.25,
        2.25,
        2.44,
        9.94,
        9.96,
        10,
        10.9,
    ),
    *(
        59,
        59.9,
        60,
        61,
        90,
        252,
        3599,
        3600,
        3661,
        7380,
        86_399,
        86_400,
        273_600,
        604_799,
        604_800,
        34_560_000,
    ),
    *(1e-9, 1 / 3, 2 / 3, 9.999, 12_345_678.9),
]
ANSWERS = """
const { now, seconds } = JSON.parse(process.argv[1]);
const of = (work) => seconds.map(work);
const moved = (by) => new Date(now + 1000 * by);
console.log(JSON.stringify({
  length: of(length), negative: of((one) => length(-one)), clock: of(clock), rough: of(rough),
  before: of((one) => relative(moved(-one), moved(0))), after: of((one) => relative(moved(one), moved(0))),
}));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, to run the browser's half")
def test_python_and_javascript_use_the_same_words() -> None:
    script = Path(ROOT, "static/js/time-words.js").read_text() + ANSWERS
    given = json.dumps({"now": NOW.timestamp() * 1000, "seconds": SECONDS})
    ran = subprocess.run(
        ["node", "--input-type=module", "--eval", script, given],
        env={**os.environ, "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout) == {
        "length": [format_duration(one) for one in SECONDS],
        "negative": [format_duration(-one) for one in SECONDS],
        "clock": [format_whole_second_duration(one) for one in SECONDS],
        "rough": [format_rough_duration(one) for one in SECONDS],
        "before": [format_relative_time(NOW - timedelta(seconds=one), NOW) for one in SECONDS],
        "after": [format_relative_time(NOW + timedelta(seconds=one), NOW) for one in SECONDS],
    }


def test_what_ticks_says_whole_seconds_and_never_less_than_none() -> None:
    assert [format_whole_second_duration(one) for one in (-3, 0, 3.9, 61.5)] == [
        "0 s",
        "0 s",
        "3 s",
        "1m 01s",
    ]


def test_in_a_sentence_a_distant_time_stays_a_length() -> None:
    said = [
        format_time_ago(NOW - timedelta(seconds=one), NOW) for one in (-5, 5, 42, 3 * 86_400, 40 * 86_400)
    ]
    assert said == ["just now", "just now", "42s ago", "3d ago", "40d ago"]
