"""One session of some 5,000 events: a plan, four sub-agents, pictures, a compaction and a build that fails.

What it says stands in long_session.json. It ended some hours before `now`, in a terminal with Claude Code.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from PIL import Image, ImageDraw

from coordinator.demo.cast import TEAMS, TRADES
from coordinator.demo.tasks import (
    MessageStep,
    PointStep,
    ToolCallStep,
    bash_step,
    edit_file_step,
    mcp_tool_step,
    read_file_step,
    todo_list_step,
)
from coordinator.demo.week import SessionStory, TimedStep

PROGRAM = "claude-code"
ENDED_BEFORE = timedelta(hours=5)
CONTEXT_AT_COMPACTION = 167_400  # tokens
SUBAGENT_CALLS = 60
EPOCH_OF_STORY = datetime(2026, 1, 1, tzinfo=UTC)  # its first moment, before it is moved to end before `now`


def plan_long_session(*, seed: int, now: datetime) -> SessionStory:
    """Return the session, the same for the same seed and clock."""
    texts = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    team, trade = TEAMS[0], next(trade for trade in TRADES if trade.name == "upgrader")
    writer = LongSessionWriter(Random(f"long session {seed}"), texts, team.project_dir, team.repository)
    session_id, run_id = (f"{prefix}_{writer.dice.randrange(16**12):012x}" for prefix in ("ses", "run"))
    moments = list(writer.generate_session_steps())
    end = max(moment.ends_at or moment.at for moment in moments)
    shift = now - ENDED_BEFORE - end
    for moment in moments:
        moment.at += shift
        moment.ends_at = moment.ends_at + shift if moment.ends_at else None
    return SessionStory(
        session_id,
        run_id,
        team,
        trade,
        texts["prompt"],
        begins=EPOCH_OF_STORY + shift,
        moments=sorted(moments, key=lambda moment: moment.at),
        ends=now - ENDED_BEFORE,
        status="finished",
        program=PROGRAM,
    )


@dataclass(slots=True)
class LongSessionWriter:
    """Lays the session's steps out in time, from EPOCH_OF_STORY on."""

    dice: Random
    texts: dict[str, Any]
    folder: str
    repository: str
    clock: datetime = EPOCH_OF_STORY + timedelta(seconds=1)

    def generate_session_steps(self) -> Iterator[TimedStep]:
        texts = self.texts
        yield self.make_timed_message_step("user", texts["prompt"])
        yield self.make_timed_message_step(
            "assistant", "I'll look for every use first, and put a plan before you."
        )
        yield self.make_timed_call_step(todo_list_step(*((text, "pending") for text in texts["todos"])))
        yield from self.generate_subagent_steps()
        plan = {"plan": texts["plan"], "filePath": None}
        yield self.make_timed_call_step(
            ToolCallStep("ExitPlanMode", {"plan": texts["plan"]}, plan, None, 95.0)
        )
        yield from self.generate_chart_steps("before", (412, 380, 401, 396, 412))
        half = len(texts["packages"]) // 2
        for number, package in enumerate(texts["packages"]):
            if number == half:
                yield self.make_timed_point_step("PreCompact", {"trigger": "auto"})
                self.clock += timedelta(seconds=41)
                about = {"trigger": "auto", "preTokens": CONTEXT_AT_COMPACTION}
                yield self.make_timed_point_step("compaction", about)
            yield from self.generate_package_edit_steps(package)
        yield from self.generate_failing_build_steps()
        yield from self.generate_chart_steps("after", (371, 366, 380, 369, 371))
        yield self.make_timed_message_step("assistant", texts["closing"])

    def generate_subagent_steps(self) -> Iterator[TimedStep]:
        """Write four sub-agents that work at the same time; the session goes on when the last is done."""
        begin, ends = self.clock, []
        for number, agent in enumerate(self.texts["subagents"]):
            self.clock = begin + timedelta(seconds=0.3 * number)
            label, called_at = f"{agent['name']} {number + 1}", self.clock
            yield self.make_timed_point_step("SubagentStart", {"agent_type": agent["name"]}, label)
            for _call in range(SUBAGENT_CALLS):
                path = f"{self.folder}/{self.dice.choice(self.texts['packages'])}"
                file, line = self.dice.choice(self.texts["modules"]), self.dice.randrange(9, 240)
                hit = f"{path}/{file}.py:{line}: import pytz\n"
                yield self.make_timed_call_step(bash_step(f"rg -n pytz {path}", hit, seconds=0.6), label)
            yield self.make_timed_point_step("SubagentStop", {"agent_type": agent["name"]}, label)
            arguments = {
                "description": agent["description"],
                "prompt": f"{agent['description']}. Name each file and line, and what is unusual.",
                "subagent_type": agent["name"],
            }
            report = {
                "content": [{"type": "text", "text": agent["report"]}],
                "totalToolUseCount": SUBAGENT_CALLS,
                "totalTokens": self.dice.randrange(21_000, 48_000),
            }
            yield TimedStep(
                ToolCallStep("Task", arguments, report), called_at, self.clock, self.make_tool_use_id()
            )
            ends.append(self.clock)
        self.clock = max(ends) + timedelta(seconds=4)

    def generate_package_edit_steps(self, package: str) -> Iterator[TimedStep]:
        for module in self.texts["modules"]:
            path = f"{self.folder}/{package}/{module}.py"
            yield self.make_timed_message_step(
                "assistant", f"`{package}/{module}.py`: {self.dice.choice(self.texts['remarks'])}"
            )
            source = (
                "import pytz\n\nZONE = pytz.timezone('Europe/Zurich')\n\n\n"
                f"def {module}_at(moment):\n    return ZONE.localize(moment)\n"
            )
            yield self.make_timed_call_step(read_file_step(path, source))
            query = {"repo": self.repository, "query": f"{package} {module} date"}
            yield self.make_timed_call_step(
                mcp_tool_step("github", "search_issues", query, "No open issues.")
            )
            yield self.make_timed_call_step(
                edit_file_step(
                    path,
                    "    return ZONE.localize(moment)\n",
                    "    return moment.replace(tzinfo=ZONE)\n",
                )
            )
            command = f"pytest {package}/tests/test_{module}.py -q"
            if self.dice.random() < 0.04:
                failure = f"Exit code 1\nFAILED {package}/tests/test_{module}.py::test_skipped_hour\n1 failed, 7 passed"
                yield self.make_timed_call_step(bash_step(command, error=failure, seconds=3.0))
            else:
                passed = f"{self.dice.randrange(3, 19)} passed in {self.dice.uniform(0.4, 2.4):.2f}s\n"
                yield self.make_timed_call_step(bash_step(command, passed, seconds=1.8))

    def generate_failing_build_steps(self) -> Iterator[TimedStep]:
        yield self.make_timed_call_step(bash_step("make build", error=self.texts["build_error"], seconds=212))
        yield self.make_timed_message_step(
            "assistant", "The build fails: two files of `exports` print `tzinfo.zone`."
        )
        for module in ("windows", "periods"):
            yield self.make_timed_call_step(
                edit_file_step(f"{self.folder}/exports/{module}.py", ".tzinfo.zone", ".tzinfo.key")
            )
        yield self.make_timed_call_step(
            bash_step("make build", "648 source files checked\nwrote dist/\n", seconds=238)
        )
        done = ((text, "completed") for text in self.texts["todos"])
        yield self.make_timed_call_step(todo_list_step(*done))

    def generate_chart_steps(self, name: str, seconds: tuple[int, ...]) -> Iterator[TimedStep]:
        """Write that a chart was drawn and looked at."""
        path = f"{self.folder}/build/suite-{name}.png"
        yield self.make_timed_call_step(
            bash_step(f"python tools/chart.py --out {path}", f"wrote {path}\n", seconds=2.2)
        )
        file = {"base64": draw_bar_chart_png_base64(seconds), "type": "image/png"}
        yield self.make_timed_call_step(
            ToolCallStep("Read", {"file_path": path}, {"type": "image", "file": file}, None, 0.3)
        )

    def make_timed_message_step(self, role: str, text: str) -> TimedStep:
        self.clock += timedelta(seconds=self.dice.uniform(0.8, 3.0))
        return TimedStep(MessageStep(role, text), self.clock, self.clock)

    def make_timed_call_step(self, step: ToolCallStep, subagent: str | None = None) -> TimedStep:
        begin = self.clock + timedelta(seconds=self.dice.uniform(0.2, 1.2))
        self.clock = begin + timedelta(seconds=step.seconds * self.dice.uniform(0.7, 1.4))
        return TimedStep(step, begin, self.clock, self.make_tool_use_id(), subagent)

    def make_timed_point_step(
        self, event_type: str, about: dict[str, Any], subagent: str | None = None
    ) -> TimedStep:
        return TimedStep(PointStep(event_type, about), self.clock, self.clock, None, subagent)

    def make_tool_use_id(self) -> str:
        return f"toolu_{self.dice.randrange(16**20):020x}"


def draw_bar_chart_png_base64(values: tuple[int, ...]) -> str:
    """Return a chart of bars as a PNG in base64."""
    image = Image.new("RGB", (320, 180), "white")
    draw = ImageDraw.Draw(image)
    for number, value in enumerate(values):
        left, height = 20 + 58 * number, 140 * value // max(values)
        draw.rectangle((left, 160 - height, left + 40, 160), fill=(47, 91, 221))
    draw.line((12, 160, 310, 160), fill=(90, 90, 100), width=2)
    png = io.BytesIO()
    image.save(png, "PNG")
    return base64.b64encode(png.getvalue()).decode()
