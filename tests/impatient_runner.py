"""A runner as patient as the real one: three polls in a row that fail, 1 s and 2 s apart, and it ends."""

from __future__ import annotations

import httpx

from tests.example_runner import ExampleRunner

WAITS = (1.0, 2.0)  # seconds after the first and the second failure; the third ends it


class ImpatientRunner(ExampleRunner):
    """Notes each failed poll in `failed`, and in `gave_up` that it ended."""

    gave_up = False

    def work(self) -> None:
        """Poll until told to end, or until three polls in a row have failed."""
        self.failed: list[str] = []
        failures = 0
        while not self.ending.is_set():
            try:
                answer = self.client.get("/runner/runs", params={"runner_id": self.runner_id})
                answer.raise_for_status()
            except httpx.HTTPError as problem:
                self.failed.append(repr(problem))
                if failures == len(WAITS):
                    self.gave_up = True
                    return
                self.ending.wait(WAITS[failures])
                failures += 1
                continue
            failures = 0
            if answer.status_code == 200:
                self.heed(answer.json())
