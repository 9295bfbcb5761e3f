"""A coordinator for a runner's tests: keeps what it is told, loses answers, goes away and comes back.

It is held to the same contract as the real one, which the served tests use; what only this one can do is to break.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.patience import PATIENCE


class SmallCoordinator:
    """Use it as a context. What it was told: `updates` by session, `reports`, `questions`, `withdrawn`."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.news: list[dict[str, Any]] = []
        self.updates: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.reports: list[tuple[str, str, dict[str, Any]]] = []
        self.statuses: list[tuple[str, str]] = []
        self.questions: list[dict[str, Any]] = []
        self.withdrawn: list[dict[str, Any]] = []
        self.bound: dict[str, dict[str, Any]] = {}
        self.registered: dict[str, Any] = {}
        self.keys: set[str | None] = set()
        self.verdicts: dict[str, dict[str, Any]] = {}  # by a call's title
        self.left = False
        self.polled_free = -1
        self.refuses: set[str] = set()  # doors that answer 403, by the end of their paths
        self.largest = 0  # characters of an update that is taken, where it is not 0
        self.loses_every = 0  # of so many posts of updates, the answer of one is lost
        self.posts = 0
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> SmallCoordinator:
        self.come_back()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.go_away()

    def go_away(self) -> None:
        """Answer nobody any more; held requests break off."""
        server, self._server = self._server, None
        with self.changed:
            self.changed.notify_all()
        if server is not None:
            server.shutdown()
            server.server_close()

    def come_back(self) -> None:
        class Door(_Door):
            coordinator = self

        class Listening(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 100

        self._server = Listening(("127.0.0.1", self.port), Door)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    # --- what a test does with it -----------------------------------------------------------------------------

    def order(
        self, session_id: str, run_id: str, prompt: str, *, kind: str = "start_session", **more: Any
    ) -> None:
        """Have the runner given a run; `more` are its parameters, but for project_dir."""
        directory = more.pop("project_dir", None)
        parameters = {"prompt": prompt, **more}
        run = {"run_id": run_id, "session_id": session_id, "type": kind, "parameters": parameters}
        self.tell({"run": {**run, "project_dir": directory}})

    def tell(self, news: dict[str, Any]) -> None:
        """Have the next poll answered with this."""
        with self.changed:
            self.news.append(news)
            self.changed.notify_all()

    def wait(self, check: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """Wait until `check` is true, and return what it says."""
        found = None

        def holds() -> bool:
            nonlocal found
            found = check()
            return bool(found)

        with self.changed:
            assert self.changed.wait_for(holds, patience), (self.reports, dict(self.updates))
        return found

    def report(self, run_id: str, *whats: str) -> tuple[str, str, dict[str, Any]]:
        """Wait for the report of a run's end, and return it."""
        wanted = whats or ("completed", "failed", "stopped")
        return self.wait(
            lambda: next((one for one in self.reports if one[0] == run_id and one[1] in wanted), None)
        )

    def said(self, session_id: str) -> str:
        """Return what the agent said in a session, put together."""
        return "".join(one["content"]["text"] for one in self.kinds(session_id, "agent_message_chunk"))

    def kinds(self, session_id: str, kind: str) -> list[dict[str, Any]]:
        found = (one["update"] for one in self.updates[session_id])
        return [update for update in found if update["sessionUpdate"] == kind]

    # --- the doors --------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Any:
        """Return an answer's JSON; None for 204. Raises KeyError for what is not there, Broken to answer nothing."""
        words = path.strip("/").split("/")
        if path == "/runner/register":
            self.registered = body
            return {"runner_id": "lnch_test", "poll_endpoint": "", "poll_timeout_seconds": 30}
        if path == "/runner/runs":
            self.polled_free = int(query["free"])
            return self.poll()
        if words[:2] == ["runner", "runs"]:
            self.reports.append((words[2], words[3], body))
            return {"ok": True}
        if words[:2] == ["runner", "sessions"]:
            return self.for_session(words[2], "/".join(words[3:]), body)
        if method == "DELETE" or words[-1] == "bind":
            self.left |= method == "DELETE"
            self.bound[words[1]] = body
            return {"ok": True}
        if words[0] == "sessions":
            return {"session": {"executor_session_id": self.bound[words[1]]["executor_session_id"]}}
        raise KeyError(path)

    def poll(self) -> Any:
        server = self._server
        self.changed.wait_for(lambda: self.news or self._server is not server, 2)
        if self._server is not server:
            raise Broken
        return self.news.pop(0) if self.news else None

    def for_session(self, session_id: str, door: str, body: dict[str, Any]) -> Any:
        assert body.get("run_id") != ""
        if door == "updates":
            kept = self.updates[session_id]
            for one in body["updates"]:
                if self.largest and len(json.dumps(one)) > self.largest:
                    raise OverflowError
                if one["n"] == len(kept) + 1:
                    kept.append({**one, "run_id": body["run_id"], "arrived": time.monotonic()})
            self.posts += bool(body["updates"])
            if self.loses_every and body["updates"] and self.posts % self.loses_every == 0:
                raise Broken
            return {"ok": True, "next": len(kept) + 1}
        if door == "permission":
            if body["ask"] not in {one["ask"] for one in self.questions}:
                self.questions.append(body)
            server, title = self._server, body["tool_call"]["title"]
            self.changed.notify_all()
            self.changed.wait_for(lambda: title in self.verdicts or self._server is not server, 1)
            if self._server is not server:
                raise Broken
            return self.verdicts.get(title, {"permission_request_id": "p", "outcome": None, "reason": None})
        if door == "permission/withdraw":
            self.withdrawn.append(body)
        elif door == "status":
            self.statuses.append((session_id, body["status"]))
        return {"ok": True}


class Broken(Exception):
    """The line breaks before there is an answer."""


class _Door(BaseHTTPRequestHandler):
    coordinator: SmallCoordinator
    protocol_version = "HTTP/1.1"

    def log_message(self, *_words: object) -> None:
        pass

    def handle_any(self) -> None:
        here = self.coordinator
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        try:
            with here.changed:
                if here._server is not self.server:
                    raise Broken
                here.keys.add(self.headers.get("Authorization"))
                if parts.path.rpartition("/")[2] in here.refuses:
                    raise PermissionError
                answer = here.answer(self.command, parts.path, query, body)
                here.changed.notify_all()
        except Broken:
            self.close_connection = True
            return
        except OverflowError:
            self.send(413, {"detail": "The body is too large"})
            return
        except PermissionError:
            self.send(403, {"detail": "This is held by another runner"})
            return
        except KeyError:
            self.send(404, {"detail": "Not found"})
            return
        self.send(204 if answer is None else 200, answer)

    do_GET = do_POST = do_DELETE = handle_any

    def send(self, status: int, answer: Any) -> None:
        data = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
