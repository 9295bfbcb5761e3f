"""The REST doors: one NinjaAPI, one router a noun. `/api/docs` shows it, `/api/openapi.json` describes it.

A router is added here with one line. Its operations say who may call them with `auth=requires(…)`
(coordinator.api.auth); they parse, call one action, and shape the answer. Errors are those of
coordinator.errors and become `{"detail": …}`.
"""

from __future__ import annotations

from django.views.decorators.http import require_safe

from coordinator.api import (
    access,
    agents,
    capabilities,
    chat,
    health,
    mcp,
    permission_requests,
    presence,
    runner,
    runners,
    runs,
    sessions,
)
from coordinator.api.application import SignalboxAPI

DESCRIPTION = """
The coordinator's API for runners, executors and operators, and Signalbox's own beside it under `/api/`.

**Keys.** Send `Authorization: Bearer sbx_…` or `X-API-Key: sbx_…`. Admins make keys on the page *API keys*, or with
`manage.py apikey create`. Each operation names the scopes of which a key needs one. No key ever decides a
permission request or edits a grant.

**Errors** are `{"detail": …}`: a sentence, or for 422 one entry a fault with its type, place, message and input.
429 and 503 say in `Retry-After` when to come back; nothing was written then.

**For programs written for the coordinator that Signalbox stands in for**: paths, fields, status codes and frames are
as they know them, for all three generations of runners. Better where that one went wrong:

- An unknown parent, or session to resume, is 404. It was 500, and blocked all writers.
- All events of a session can be read (`limit`, `after`, `before`), and lists page (`limit`, `cursor`).
- `Last-Event-ID` replays what was missed; events of one instant keep the order of their receipt; `{}`, `[]`, `0` stay.
- A failed run leaves its session in `error`, also where no runner took it in time. An end is final.
- A session runs one run at a time: a resume of a busy session waits for its turn. Stopping a session stops its
  latest run. A session at work cannot be deleted (409).
- The start of every run is an event `session_start`, its end `session_stop`, whether the executor sends them or not.
- Runners outlive a restart of the server. One that lost its poll gets its run again, or another does. Only the runner
  that holds a run reports on it (403). A runner that crashed may register again at once.
- Callbacks are told once, also after a time-out, to a parent that failed or was stopped, and to where it ran.
"""

api = SignalboxAPI(
    title="Signalbox",
    version="0.1.0",
    description=DESCRIPTION,
    docs_url="/api/docs",
    openapi_url="/api/openapi.json",
    docs_decorator=require_safe,
    urls_namespace="api",
)

api.add_router("", health.router)
api.add_router("", sessions.router)
api.add_router("", runs.router)
api.add_router("", runner.router)
api.add_router("", runners.router)
api.add_router("", agents.router)
api.add_router("", capabilities.router)
api.add_router("/api", permission_requests.router)
api.add_router("/api", access.router)
api.add_router("/api", mcp.router)
api.add_router("/api", presence.router)
api.add_router("/api", chat.router)
