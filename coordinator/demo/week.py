"""Who does what when: sessions over the last days, laid out in time and cut off at `now`.

What would end after `now` is still running; a question that would be answered after `now` is still open.
The same seed and the same `now` give the same week.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Literal

from coordinator.demo import programs
from coordinator.demo.cast import (
    PEOPLE,
    TEAMS,
    TRADES,
    Team,
    Trade,
    choose_agent_program,
    demo_agent_id,
    demo_blueprint_name,
)
from coordinator.demo.tasks import (
    DelegationStep,
    EndStep,
    MessageStep,
    PermissionStep,
    PointStep,
    Step,
    ToolCallStep,
    task,
)

SESSIONS_PER_AGENT = 7
WORKING_HOURS = (6, 7, 8, 8, 9, 9, 9, 10, 10, 11, 12, 13, 13, 14, 14, 15, 15, 16, 17, 18, 20, 23, 3)
OPEN_QUESTIONS = 6  # sessions that wait for a person right now
AT_WORK = 5  # sessions in the middle of a call right now

Verdict = Literal["pending", "approved", "denied", "expired", "withdrawn"]


@dataclass(slots=True)
class PlannedRequest:
    """A permission request: what was asked, when, and how it ended."""

    ask: PermissionStep
    requested_at: datetime
    verdict: Verdict
    decided_at: datetime | None
    decided_by: str | None
    reason: str | None


@dataclass(slots=True)
class TimedStep:
    """A step with its time; `ends_at` is None for a call that is still running."""

    step: MessageStep | ToolCallStep | PointStep
    at: datetime
    ends_at: datetime | None
    tool_use_id: str | None = None
    subagent: str | None = None


@dataclass(slots=True)
class SessionStory:
    session_id: str
    run_id: str
    team: Team
    trade: Trade
    prompt: str
    begins: datetime
    parent: SessionStory | None = None
    moments: list[TimedStep] = field(default_factory=list)
    questions: list[PlannedRequest] = field(default_factory=list)
    ends: datetime | None = None
    status: str = "running"
    error: str | None = None
    program: str | None = None  # in whose terminal it runs; None: a runner drives it

    @property
    def session_agent_name(self) -> str:
        """The name by which its session is known: a terminal's key is bound to the agent itself."""
        return self.story_agent_id if self.program else self.story_blueprint_name

    @property
    def story_blueprint_name(self) -> str:
        return demo_blueprint_name(self.team, self.trade)

    @property
    def story_agent_id(self) -> str:
        return demo_agent_id(self.team, self.trade)


class WeekPlanner:
    """Plans all stories. `stories` holds parents and children, in order of their beginning."""

    def __init__(self, *, seed: int, now: datetime, days: int = 7) -> None:
        self.dice = Random(seed)
        self.now = now
        self.days = days
        self.stories: list[SessionStory] = []

    def plan_week_stories(self) -> list[SessionStory]:
        for team in TEAMS:
            for trade in TRADES:
                for _nth in range(self.dice.randint(SESSIONS_PER_AGENT - 3, SESSIONS_PER_AGENT + 3)):
                    self.compose_and_add_story(team, trade, self.choose_working_time())
        for _nth in range(OPEN_QUESTIONS):
            self.add_story_with_open_request()
        for _nth in range(AT_WORK):
            team, trade = self.dice.choice(TEAMS), self.dice.choice(TRADES)
            self.compose_and_add_story(team, trade, self.now - timedelta(seconds=self.dice.uniform(20, 70)))
        self.stories.sort(key=lambda story: story.begins)
        return self.stories

    def choose_working_time(self) -> datetime:
        """Return a moment of the week, likelier at the hours when people work."""
        day = self.now - timedelta(days=self.dice.uniform(0, self.days))
        hour = self.dice.choice(WORKING_HOURS)
        moment = day.replace(hour=hour, minute=self.dice.randrange(60), second=self.dice.randrange(60))
        return moment if moment < self.now - timedelta(hours=1) else moment - timedelta(days=1)

    def add_story_with_open_request(self) -> None:
        """Tell a session so that its first question was asked minutes ago and nobody has answered."""
        # Not the captain: a discarded attempt of hers would leave her children behind.
        askers = [trade for trade in TRADES if trade.name in {"fixer", "reviewer", "oncall", "upgrader"}]
        for _try in range(20):
            story = StoryWriter(
                self, self.dice.choice(TEAMS), self.dice.choice(askers), self.now, patient=True
            ).compose_session_story()
            if not story.questions:
                continue
            waited = timedelta(seconds=self.dice.uniform(15, 780))
            shift = self.now - waited - story.questions[0].requested_at
            shift_story_times(story, shift)
            self.stories.append(story)
            return

    def compose_and_add_story(
        self, team: Team, trade: Trade, begins: datetime, parent: SessionStory | None = None, prompt: str = ""
    ) -> SessionStory:
        story = StoryWriter(self, team, trade, begins, parent=parent, prompt=prompt).compose_session_story()
        self.stories.append(story)
        return story

    def make_random_id(self, prefix: str) -> str:
        return f"{prefix}_{self.dice.randrange(16**12):012x}"


class StoryWriter:
    def __init__(
        self,
        week: WeekPlanner,
        team: Team,
        trade: Trade,
        begins: datetime,
        *,
        parent: SessionStory | None = None,
        prompt: str = "",
        patient: bool = False,
    ) -> None:
        self.week = week
        self.dice = week.dice
        self.clock = begins
        self.patient = patient
        self.story = SessionStory(
            week.make_random_id("ses"), week.make_random_id("run"), team, trade, prompt, begins, parent
        )
        self.story.program = None if parent else choose_agent_program(team, trade)
        self.steps: Iterator[Step] = task.tasks[self.dice.choice(trade.tasks)](self.dice, team)

    def compose_session_story(self) -> SessionStory:
        """Take the steps until the task ends, a question stays open, or `now` is reached."""
        self.clock += timedelta(seconds=self.dice.uniform(0.8, 2.5))
        for step in self.steps:
            if self.clock >= self.week.now and not self.patient:
                return self.story
            if not self.append_step_to_story(step):
                return self.story
        return self.story

    def append_step_to_story(self, step: Step) -> bool:
        if isinstance(step, MessageStep):
            self.add_story_message(step)
        elif isinstance(step, ToolCallStep):
            return self.add_call_and_report_continuation(step)
        elif isinstance(step, PermissionStep):
            return self.add_request_and_report_continuation(step)
        elif isinstance(step, DelegationStep):
            return self.add_child_and_report_continuation(step)
        else:
            self.end_story(step)
            return False
        return True

    def add_story_message(self, step: MessageStep) -> None:
        if step.role == "user" and not self.story.prompt:
            self.story.prompt = step.text
        elif step.role == "user" and self.story.parent:
            step = MessageStep("user", self.story.prompt)
        if step.role == "assistant":
            self.clock += timedelta(seconds=self.dice.uniform(2, 11))
        self.story.moments.append(TimedStep(step, self.clock, self.clock))
        self.clock += timedelta(milliseconds=self.dice.uniform(300, 1500))

    def add_call_and_report_continuation(self, step: ToolCallStep) -> bool:
        """A tool call; one that would end after now is still running, and the story stops at it."""
        program_call = self.convert_call_for_program(step)
        if program_call is None:
            return True
        step = program_call
        begins = self.clock
        self.clock += timedelta(seconds=step.seconds * self.dice.uniform(0.7, 1.4))
        running = self.clock >= self.week.now and not self.patient
        tool_use_id = f"toolu_{self.dice.randrange(16**20):020x}"
        self.story.moments.append(TimedStep(step, begins, None if running else self.clock, tool_use_id))
        self.clock += timedelta(seconds=self.dice.uniform(0.6, 5))
        return not running

    def convert_call_for_program(self, step: ToolCallStep) -> ToolCallStep | None:
        """Return a call as the session's program makes it; None where it makes no such call."""
        return (
            programs.program_format_or_default(self.story.program).call(step) if self.story.program else step
        )

    def add_request_and_report_continuation(self, step: PermissionStep) -> bool:
        question = self.plan_request_outcome(step)
        self.story.questions.append(question)
        if question.verdict == "pending":
            self.story.moments.append(
                TimedStep(step.call, question.requested_at, None, self.week.make_random_id("toolu"))
            )
            return False
        self.clock = question.decided_at or self.clock
        if question.verdict == "approved":
            return self.add_call_and_report_continuation(step.call)
        refusal = question.reason or "Nobody answered in time."
        reason = f"Permission {question.verdict}: {refusal}"
        if self.story.program and question.decided_by:
            reason = f"Denied by {question.decided_by} in Signalbox: {refusal}"
        refused = ToolCallStep(step.call.tool, step.call.input, None, reason, 0.0)
        self.add_call_and_report_continuation(refused)
        self.add_story_message(
            MessageStep(
                "assistant",
                f"I may not do that ({refusal.rstrip('.')}). Everything else is done; I'll leave it there.",
            )
        )
        self.end_story(EndStep())
        return False

    def plan_request_outcome(self, step: PermissionStep) -> PlannedRequest:
        """Decide how a question ends: mostly yes, sometimes no, now and then not at all."""
        requested_at = self.clock
        waits = timedelta(
            seconds=self.dice.choice([4, 9, 15, 22, 40, 75, 180, 420, 900]) * self.dice.uniform(0.7, 1.3)
        )
        decided_at = requested_at + waits
        if self.patient or decided_at >= self.week.now:
            return PlannedRequest(step, requested_at, "pending", None, None, None)
        verdict: Verdict = self.dice.choices(("approved", "denied", "expired", "withdrawn"), (81, 12, 5, 2))[
            0
        ]
        reasons: dict[str, list[str | None]] = {
            "approved": [None, None, "Looks right.", "Checked the diff.", "Fine for the sandbox."],
            "denied": ["Not before the freeze is over.", "Wrong branch.", "Ask the team that owns it first."],
            "expired": [None],
            "withdrawn": ["The session ended first."],
        }
        person = self.dice.choice(PEOPLE) if verdict in {"approved", "denied"} else None
        return PlannedRequest(
            step, requested_at, verdict, decided_at, person, self.dice.choice(reasons[verdict])
        )

    def add_child_and_report_continuation(self, step: DelegationStep) -> bool:
        trade = next(trade for trade in TRADES if trade.name == step.trade)
        begins = self.clock
        child = self.week.compose_and_add_story(
            self.story.team, trade, begins, parent=self.story, prompt=step.prompt
        )
        arguments = {"agent_name": child.story_blueprint_name, "prompt": step.prompt, "mode": "sync"}
        answer = [{"type": "text", "text": f"Session {child.session_id} {child.status}"}]
        call = ToolCallStep("mcp__agents__start_agent_session", arguments, answer)
        self.clock = child.ends or self.week.now
        tool_use_id = f"toolu_{self.dice.randrange(16**20):020x}"
        self.story.moments.append(TimedStep(call, begins, child.ends, tool_use_id))
        return child.ends is not None

    def end_story(self, step: EndStep) -> None:
        """The session ends; now and then a person stops it instead."""
        stopped = step.status == "finished" and self.dice.random() < 0.04
        self.story.status = "stopped" if stopped else step.status
        self.story.error = step.error
        self.story.ends = self.clock


def shift_story_times(story: SessionStory, shift: timedelta) -> None:
    story.begins += shift
    for moment in story.moments:
        moment.at += shift
        moment.ends_at = moment.ends_at + shift if moment.ends_at else None
    for question in story.questions:
        question.requested_at += shift
