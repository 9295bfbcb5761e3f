"""People's terminals in the demo: agent programs that post their hooks, and do as those are answered."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coordinator.demo import programs
from coordinator.demo.cast import Team, Trade
from coordinator.demo.tasks import (
    DelegationStep,
    EndStep,
    MessageStep,
    PermissionStep,
    Step,
    ToolCallStep,
    task,
)

if TYPE_CHECKING:
    from coordinator.demo.live import DemoApiClient, DemoFleet

WAIT = 300  # seconds that a hook waits for a person
BETWEEN = (4.0, 20.0)  # seconds between two sessions, between these


class DemoTerminal:
    """One program at one person's machine: it works through tasks, one session after the other."""

    def __init__(self, fleet: DemoFleet, name: str, team: Team, trade: Trade, api: DemoApiClient) -> None:
        self.fleet = fleet
        self.name = name
        self.program = programs.program_format_or_default(name)
        self.team = team
        self.trade = trade
        self.api = api
        self.session = ""
        self.turn = ""

    def run_terminal_sessions(self) -> None:
        """Hold sessions until the demo is over."""
        while not self.fleet.over.is_set():
            try:
                self.run_terminal_session()
            except (OSError, self.fleet.refused) as problem:
                if not self.fleet.over.is_set():
                    self.fleet.say(f"{self.name}: {problem}")
            self.fleet.over.wait(self.fleet.dice.uniform(*BETWEEN))

    def end_open_session(self) -> None:
        """Say that the session is over, so that nobody takes it for running."""
        if self.session:
            with contextlib.suppress(OSError, self.fleet.refused):
                self.post_terminal_hook("SessionEnd", {"reason": "other"}, patient=False)

    def run_terminal_session(self) -> None:
        """Take a task from its first words to its end."""
        self.session, self.turn = str(uuid.uuid4()), str(uuid.uuid4())
        steps = task.tasks[self.fleet.dice.choice(self.trade.tasks)](self.fleet.dice, self.team)
        first = next(steps)
        first_prompt = first.text if isinstance(first, MessageStep) else "Please have a look."
        self.post_terminal_hook("SessionStart", {"source": "startup"})
        self.post_terminal_hook("UserPromptSubmit", {"prompt": first_prompt})
        for step in steps:
            if self.fleet.over.is_set() or not self.play_step_and_report_continuation(step):
                break
        self.post_terminal_hook("Stop", {"last_assistant_message": "That is all for now."})
        self.post_terminal_hook("SessionEnd", {"reason": "prompt_input_exit"})
        self.session = ""

    def play_step_and_report_continuation(self, step: Step) -> bool:
        """Take one step; say whether there is a next one."""
        if isinstance(step, EndStep):
            return False
        if isinstance(step, MessageStep):
            self.report_terminal_message(step)
        elif isinstance(step, ToolCallStep):
            self.make_call_and_check_executed(step)
        elif isinstance(step, PermissionStep):
            return self.make_call_and_check_executed(step.call, permission_step=step)
        elif isinstance(step, DelegationStep):
            self.report_terminal_message(MessageStep("assistant", f"For the {step.trade}: {step.prompt}"))
        return True

    def report_terminal_message(self, step: MessageStep) -> None:
        self.fleet.pause_at_demo_speed(step.seconds)
        if self.program.reports_messages:
            message = {"message_id": str(uuid.uuid4()), "index": 0, "delta": step.text, "final": True}
            self.post_terminal_hook("MessageDisplay", message)

    def make_call_and_check_executed(
        self, step: ToolCallStep, permission_step: PermissionStep | None = None
    ) -> bool:
        """Make a call as its hooks are answered; say whether it ran."""
        call_answer = self.program.call(step)
        if call_answer is None:
            return True
        about = {
            "tool_name": call_answer.tool,
            "tool_input": call_answer.input,
            "tool_use_id": f"toolu_{uuid.uuid4().hex[:20]}",
        }
        decision = self.post_terminal_hook("PreToolUse", about).get("permissionDecision")
        if decision is None and permission_step is not None:
            decision = self.request_and_await_terminal_verdict(about, permission_step)
        if decision not in {None, "allow"}:
            self.report_terminal_message(
                MessageStep("assistant", "I may not do that; everything else is done, and I leave it there.")
            )
            return False
        self.fleet.pause_at_demo_speed(call_answer.seconds)
        if call_answer.error and self.program.fails != "PostToolUse":
            self.post_terminal_hook(self.program.fails, about | {"error": call_answer.error})
        else:
            self.post_terminal_hook(
                "PostToolUse", about | {"tool_response": call_answer.error or call_answer.output}
            )
        return True

    def request_and_await_terminal_verdict(
        self, about: dict[str, Any], permission_step: PermissionStep
    ) -> str:
        """Ask as the program asks its own person, who looks at Signalbox; no answer is a no."""
        sent_input = about["tool_input"] | (
            {"description": permission_step.why} if self.program.describes else {}
        )
        answer = self.post_terminal_hook(
            "PermissionRequest", {"tool_name": about["tool_name"], "tool_input": sent_input}
        )
        verdict = answer.get("decision")
        return str(verdict.get("behavior")) if isinstance(verdict, dict) else "deny"

    def post_terminal_hook(
        self, name: str, fields: Mapping[str, Any], *, patient: bool = True
    ) -> dict[str, Any]:
        """Post a hook; return what its answer says of it."""
        body = {"session_id": self.session, "hook_event_name": name, "cwd": self.team.project_dir, **fields}
        path = f"/hooks/{self.name}?wait={WAIT}"
        body[self.program.turn] = self.turn
        if patient:
            answer = self.fleet.request_with_retries("POST", path, body, timeout=WAIT + 30.0, api=self.api)
        else:
            answer = self.api("POST", path, body, timeout=3)
        hook_specific_output = answer.get("hookSpecificOutput") if isinstance(answer, dict) else None
        return hook_specific_output if isinstance(hook_specific_output, dict) else {}
