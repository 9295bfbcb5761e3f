"""A runner that drives one session of the served program, a call at a time."""

from __future__ import annotations

import uuid
from typing import Any

from tests.driving.recorded import OFFERS, PERSISTENT, numbered
from tests.served import Served


class Driver:
    """A runner that drives one session, a call at a time."""

    def __init__(self, served: Served, agent: str = "claude") -> None:
        self.served = served
        self.http = served.client("runner")
        identity = {"hostname": f"host-{uuid.uuid4().hex[:8]}", "project_dir": "/home/dev/project"}
        body = {**identity, "executor_profile": "signalbox", "executor": PERSISTENT, "offers": OFFERS}
        self.runner_id = self.call("/runner/register", body)["runner_id"]
        order = {
            "type": "start_session",
            "parameters": {"prompt": "please work", "agent": agent},
            "project_dir": "/home/dev/project",
            "additional_demands": {"hostname": identity["hostname"]},
        }
        served.client("operator").post("/runs", json=order).raise_for_status()
        self.run = self.http.get("/runner/runs", params={"runner_id": self.runner_id}).json()["run"]
        self.session = self.run["session_id"]
        self.call(f"/runner/runs/{self.run['run_id']}/started", {"runner_id": self.runner_id})
        self.next = self.run["driven"]["next"]

    def call(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def tell(self, *updates: dict[str, Any]) -> int:
        body = {
            "runner_id": self.runner_id,
            "run_id": self.run["run_id"],
            "updates": [*numbered(list(updates), self.next)],
        }
        self.next = self.call(f"/runner/sessions/{self.session}/updates", body)["next"]
        return int(self.next)

    def ask(self, question: dict[str, Any], name: str | None = None) -> dict[str, Any]:
        body = {
            "runner_id": self.runner_id,
            "run_id": self.run["run_id"],
            "tool_call": question["toolCall"],
            "options": question["options"],
            "ask": name,
        }
        answer: dict[str, Any] = self.call(f"/runner/sessions/{self.session}/permission", body)
        return answer

    def pending(self) -> str | None:
        found = self.served.sql(
            "SELECT r.request_id FROM permission_requests r JOIN permission_context c"
            " ON c.request_id = r.request_id WHERE r.status = 'pending' AND c.session_id = ?",
            (self.session,),
        )
        return str(found[0][0]) if found else None

    def poll(self) -> dict[str, Any] | None:
        """Ask for something to do; None where there is nothing."""
        answer = self.http.get("/runner/runs", params={"runner_id": self.runner_id})
        return answer.json() if answer.status_code == 200 else None

    def ended(self) -> None:
        """Report the turn as ended, its agent waiting for the next."""
        body = {"runner_id": self.runner_id, "status": "success", "session_status": "idle"}
        self.call(f"/runner/runs/{self.run['run_id']}/completed", body)
