"""An agent's questions to a person: held at the server for as long as it takes, over restarts of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable
from typing import Any

from coordinator.runner.errors import ServerRefused, ServerTimedOut
from coordinator.runner.server import SignalboxServer

CANCELLED = {"outcome": {"outcome": "cancelled"}}
FORM_CANCELLED = {"action": "cancel"}
FORM_ACTIONS = frozenset({"accept", "decline", "cancel"})
WITHDRAW_WITHIN = 5.0  # seconds
MOST_KNOWN, LARGEST_KNOWN = 256, 512 << 10
OPEN = {None, "pending", "in_progress"}


class AgentToolCalls:
    """What an agent has said of its calls so far, by their ids: the newest of each field."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, Any]] = {}

    def record_tool_call_update(self, update: dict[str, Any]) -> None:
        """Take in an update of a call; other updates are none."""
        if update.get("sessionUpdate") not in {"tool_call", "tool_call_update"}:
            return
        call_id = update.get("toolCallId")
        if not isinstance(call_id, str):
            return
        update_fields = {name: value for name, value in update.items() if value is not None}
        merged_call = {**self._calls.pop(call_id, {}), **update_fields, "sessionUpdate": "tool_call"}
        if merged_call.get("status") not in OPEN:
            return
        if len(json.dumps(merged_call)) <= LARGEST_KNOWN:
            self._calls[call_id] = merged_call
        while len(self._calls) > MOST_KNOWN:
            del self._calls[next(iter(self._calls))]

    def tool_call_or_empty(self, call_id: object) -> dict[str, Any]:
        return self._calls.get(call_id, {}) if isinstance(call_id, str) else {}

    @property
    def has_open_tool_calls(self) -> bool:
        return bool(self._calls)

    def clear_tool_calls(self) -> None:
        self._calls.clear()

    def find_call_id_showing_terminal(self, terminal_id: str) -> str | None:
        """Return the call whose content is this terminal."""
        for call_id, known_call in self._calls.items():
            content = known_call.get("content")
            for part in content if isinstance(content, list) else ():
                if isinstance(part, dict) and part.get("terminalId") == terminal_id:
                    return call_id
        return None


class PermissionQuestions:
    """The open questions of one session. `denied` is called with a person's reason for a no."""

    def __init__(
        self,
        server: SignalboxServer,
        session_id: str,
        calls: AgentToolCalls,
        denied: Callable[[str, str], None],
    ) -> None:
        self._server = server
        self._session_id = session_id
        self._calls = calls
        self._denied = denied
        self._withdrawn: dict[str, asyncio.Future[str]] = {}

    @property
    def has_open_questions(self) -> bool:
        return bool(self._withdrawn)

    def withdraw_all_permission_questions(self, reason: str) -> None:
        """Take every question back: the agent is answered that its turn was cancelled."""
        for withdrawn in self._withdrawn.values():
            if not withdrawn.done():
                withdrawn.set_result(reason)

    async def ask_person_for_tool_permission(self, run_id: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return what the agent is answered, in its protocol's words."""
        call = params.get("toolCall")
        call = call if isinstance(call, dict) else {}
        offered = params.get("options")
        options = (
            [option for option in offered if isinstance(option, dict)] if isinstance(offered, list) else []
        )
        known_call = self._calls.tool_call_or_empty(call.get("toolCallId"))
        body = {"tool_call": call, "options": options, "known": [known_call] if known_call else []}
        try:
            answer = await self._ask_server_until_withdrawn(run_id, body)
        except ServerRefused as problem:
            self._denied(str(call.get("title") or "this"), f"Signalbox could not be asked: {problem}")
            return reject_once_or_cancelled_outcome(options)
        if answer is None:
            return CANCELLED
        return self.build_question_outcome_recording_denial(
            call, options, answer["outcome"], answer.get("reason")
        )

    async def ask_person_for_form_answer(self, run_id: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return what the agent is answered that has a person fill in a form; one that cannot be asked is cancelled."""
        call_id = params.get("toolCallId")
        call = {"toolCallId": call_id if isinstance(call_id, str) and call_id else f"form-{uuid.uuid4().hex}"}
        try:
            answer = await self._ask_server_until_withdrawn(
                run_id, {"tool_call": call, "options": [], "elicitation": params}
            )
        except ServerRefused:
            return FORM_CANCELLED
        outcome = answer["outcome"] if answer is not None else FORM_CANCELLED
        if outcome.get("action") not in FORM_ACTIONS:  # a server that knows no forms
            return FORM_CANCELLED
        if outcome["action"] == "decline" and answer is not None and isinstance(answer.get("reason"), str):
            self._denied(str(params.get("message") or "this"), answer["reason"])
        return {name: outcome[name] for name in ("action", "content") if name in outcome}

    async def _ask_server_until_withdrawn(self, run_id: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the server's answer, None where the question was taken back. Raises ServerRefused."""
        ask = uuid.uuid4().hex
        withdrawn: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._withdrawn[ask] = withdrawn
        answering = asyncio.create_task(self._poll_server_for_question_outcome(ask, run_id, body))
        try:
            both: set[asyncio.Future[Any]] = {answering, withdrawn}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            await self._report_withdrawn_question(ask, body["tool_call"], withdrawn.result())
            return None
        finally:
            del self._withdrawn[ask]
            answering.cancel()

    async def _poll_server_for_question_outcome(
        self, ask: str, run_id: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        while True:
            answer = await self._server.post_to_session_endpoint(
                self._session_id, "permission", run_id=run_id, ask=ask, **body
            )
            if isinstance(answer.get("outcome"), dict):
                return answer
            await asyncio.sleep(0.05)  # a server that does not hold the question must not be flooded

    def build_question_outcome_recording_denial(
        self, call: dict[str, Any], options: list[dict[str, Any]], outcome: dict[str, Any], reason: object
    ) -> dict[str, Any]:
        chosen = next(
            (option for option in options if option.get("optionId") == outcome.get("optionId")), None
        )
        kind = str(chosen.get("kind")) if chosen else ""
        reason = outcome.get("why") or reason
        if not kind.startswith("allow") and isinstance(reason, str) and reason.strip():
            self._denied(str(call.get("title") or "this"), reason.strip())
        if chosen is None:
            return CANCELLED if outcome.get("cancelled") else reject_once_or_cancelled_outcome(options)
        return {"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}

    async def _report_withdrawn_question(self, ask: str, call: dict[str, Any], reason: str) -> None:
        with contextlib.suppress(ServerRefused, ServerTimedOut):
            await self._server.post_to_session_endpoint(
                self._session_id,
                "permission/withdraw",
                patience=WITHDRAW_WITHIN,
                ask=ask,
                toolCallId=call.get("toolCallId"),
                why=reason,
            )


def reject_once_or_cancelled_outcome(options: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the option that says no this once, or that the turn was cancelled where there is none."""
    no = next((option for option in options if option.get("kind") == "reject_once"), None)
    return {"outcome": {"outcome": "selected", "optionId": no.get("optionId")}} if no else CANCELLED
