"""The REST API: one NinjaAPI, one router per noun. `/api/docs` shows it, `/api/openapi.json` describes it.

A router is added here with one line. Its operations say who may call them with `auth=build_scoped_key_auth(…)`, or
`auth=None` for everybody (coordinator.api.auth); they parse, call one action, and shape the answer. Errors are those
of coordinator.errors and become `{"detail": …}`.
"""

from __future__ import annotations

from coordinator.api import (
    access,
    agents,
    capabilities,
    chat,
    client_program,
    connecting,
    health,
    mcp,
    permission_requests,
    plugin_files,
    presence,
    runner,
    runners,
    runs,
    sessions,
    subscription_limits,
    transcripts,
)
from coordinator.api.application import SignalboxAPI
from coordinator.identity.declarations import declare_anonymous_access, require_safe

DESCRIPTION = """
The Agent Coordinator's API for runners, executors and operators, and Signalbox's own under `/api/`.

**Keys.** Send `Authorization: Bearer sbx_…` or `X-API-Key: sbx_…`. Admins create keys on the page *API keys* or with
`signalbox manage apikey create`. Each operation lists its scopes; a key needs one of them. No key can decide a
permission request or edit a grant.

**Errors** are `{"detail": …}`: `detail` is a sentence, or for 422 a list with the type, place, message and input of
each fault. After 429 and 503 nothing was written; `Retry-After` says when to try again.

**Compatibility.** Programs written for the Agent Coordinator work unchanged: paths, fields, status codes and stream
frames are the same, for all three generations of runners. These differ, for the better:

- An unknown parent session, or an unknown session to resume, gives 404. It gave 500 and blocked all writers.
- All events of a session can be read (`limit`, `after`, `before`; `has_more` says whether to go on), and lists have
  pages (`limit`, `cursor`).
- `Last-Event-ID` replays missed events. Events with equal times keep the order of their receipt. `{}`, `[]` and `0`
  are kept.
- A failed run leaves its session in `error`, also if no runner took it in time. A final status never changes.
- A session runs one run at a time: resuming a busy session waits for its turn. Stopping a session stops its latest
  run. A running session cannot be deleted (409).
- Every run has an event `session_start` at its start and `session_stop` at its end, even if the executor sends none;
  `run_start` and `run_completed` if a runner of the newest version ran it.
- If a run's completion is reported before its start, both are recorded. A run that was stopped stays stopped.
- Runners survive a restart of the server. If a poll breaks off, its run goes to the next poll of any suitable runner.
  Only the runner that holds a run may report on it (403). A crashed runner may register again at once.
- Callbacks are delivered once, to where the parent ran, also after a timeout and to a parent that failed or was
  stopped.
"""

api = SignalboxAPI(
    title="Signalbox",
    version="0.1.0",
    description=DESCRIPTION,
    docs_url="/api/docs",
    openapi_url="/api/openapi.json",
    docs_decorator=lambda view: require_safe(declare_anonymous_access(view)),
    urls_namespace="api",
)

api.add_router("", health.router)
api.add_router("", plugin_files.router)
api.add_router("", client_program.router)
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
api.add_router("/api", connecting.router)
api.add_router("/api", subscription_limits.router)
api.add_router("/api", transcripts.router)
