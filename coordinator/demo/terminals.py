"""People's terminals in the demo: agent programs that post their hooks, and do as those are answered."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coordinator.demo import programs
from coordinator.demo.cast import Team, Trade
from coordinator.demo.tasks import Ask, Call, Delegate, End, Say, Step, task

if TYPE_CHECKING:
    from coordinator.demo.live import Api, Fleet

WAIT = 300  # seconds that a hook waits for a person
BETWEEN = (4.0, 20.0)  # seconds between two sessions, between these


class Terminal:
    """One program at one person's machine: it works through tasks, one session after the other."""

    def __init__(self, fleet: Fleet, name: str, team: Team, trade: Trade, api: Api) -> None:
        self.fleet = fleet
        self.name = name
        self.program = programs.program(name)
        self.team = team
        self.trade = trade
        self.api = api
        self.session = ""
        self.turn = ""

    def work(self) -> None:
        """Hold sessions until the demo is over."""
        while not self.fleet.over.is_set():
            try:
                self.hold_session()
            except (OSError, self.fleet.refused) as problem:
                if not self.fleet.over.is_set():
                    self.fleet.say(f"{self.name}: {problem}")
            self.fleet.over.wait(self.fleet.dice.uniform(*BETWEEN))

    def leave(self) -> None:
        """Say that the session is over, so that nobody takes it for running."""
        if self.session:
            with contextlib.suppress(OSError, self.fleet.refused):
                self.hook("SessionEnd", {"reason": "other"}, patient=False)

    def hold_session(self) -> None:
        """Take a task from its first words to its end."""
        self.session, self.turn = str(uuid.uuid4()), str(uuid.uuid4())
        steps = task.tasks[self.fleet.dice.choice(self.trade.tasks)](self.fleet.dice, self.team)
        first = next(steps)
        words = first.text if isinstance(first, Say) else "Please have a look."
        self.hook("SessionStart", {"source": "startup"})
        self.hook("UserPromptSubmit", {"prompt": words})
        for step in steps:
            if self.fleet.over.is_set() or not self.take(step):
                break
        self.hook("Stop", {"last_assistant_message": "That is all for now."})
        self.hook("SessionEnd", {"reason": "prompt_input_exit"})
        self.session = ""

    def take(self, step: Step) -> bool:
        """Take one step; say whether there is a next one."""
        if isinstance(step, End):
            return False
        if isinstance(step, Say):
            self.say(step)
        elif isinstance(step, Call):
            self.call(step)
        elif isinstance(step, Ask):
            return self.call(step.call, asks=step)
        elif isinstance(step, Delegate):
            self.say(Say("assistant", f"For the {step.trade}: {step.prompt}"))
        return True

    def say(self, step: Say) -> None:
        self.fleet.pause(step.seconds)
        if self.program.tells_messages:
            message = {"message_id": str(uuid.uuid4()), "index": 0, "delta": step.text, "final": True}
            self.hook("MessageDisplay", message)

    def call(self, step: Call, asks: Ask | None = None) -> bool:
        """Make a call as its hooks are answered; say whether it ran."""
        said = self.program.call(step)
        if said is None:
            return True
        about = {
            "tool_name": said.tool,
            "tool_input": said.input,
            "tool_use_id": f"toolu_{uuid.uuid4().hex[:20]}",
        }
        decision = self.hook("PreToolUse", about).get("permissionDecision")
        if decision is None and asks is not None:
            decision = self.ask(about, asks)
        if decision not in {None, "allow"}:
            self.say(Say("assistant", "I may not do that; everything else is done, and I leave it there."))
            return False
        self.fleet.pause(said.seconds)
        if said.error and self.program.fails != "PostToolUse":
            self.hook(self.program.fails, about | {"error": said.error})
        else:
            self.hook("PostToolUse", about | {"tool_response": said.error or said.output})
        return True

    def ask(self, about: dict[str, Any], asks: Ask) -> str:
        """Ask as the program asks its own person, who looks at Signalbox; no answer is a no."""
        given = about["tool_input"] | ({"description": asks.why} if self.program.describes else {})
        answer = self.hook("PermissionRequest", {"tool_name": about["tool_name"], "tool_input": given})
        verdict = answer.get("decision")
        return str(verdict.get("behavior")) if isinstance(verdict, dict) else "deny"

    def hook(self, name: str, fields: Mapping[str, Any], *, patient: bool = True) -> dict[str, Any]:
        """Post a hook; return what its answer says of it."""
        body = {"session_id": self.session, "hook_event_name": name, "cwd": self.team.project_dir, **fields}
        path = f"/hooks/{self.name}?wait={WAIT}"
        body[self.program.turn] = self.turn
        if patient:
            answer = self.fleet.patiently("POST", path, body, timeout=WAIT + 30.0, api=self.api)
        else:
            answer = self.api("POST", path, body, timeout=3)
        said = answer.get("hookSpecificOutput") if isinstance(answer, dict) else None
        return said if isinstance(said, dict) else {}
