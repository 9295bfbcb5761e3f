"""Who may use which URL: one row for each, by which tests/guards/test_every_url.py tries every caller on it.

A new URL needs a row here. Before you write it, ask: may everybody with that role or scope touch every row behind
this URL, or only their own? Whose a session, a runner or a request is, is told by coordinator/identity/ownership.py,
actions/runners.py and approvals.visible; tests/guards/test_whose.py holds those rules.
"""

from __future__ import annotations

SAFE, BOTH, POST, GET = "GET HEAD", "GET HEAD POST", "POST", "GET"
_PAGES: dict[tuple[str, str], str] = {
    ("anyone", BOTH): "accounts:login accounts:setup accounts:provider-back",
    ("anyone", POST): "accounts:logout accounts:theme accounts:provider-start",
    (
        "anyone",
        SAFE,
    ): "push:worker push:manifest push:offline",  # files of the app; nothing of anybody in them
    ("anyone", "GET HEAD POST PUT PATCH DELETE OPTIONS"): "home",  # it only leads to /ui/
    ("signed_in", SAFE): "accounts:account help:index help:page help:picture",
    ("signed_in", BOTH): "accounts:password",
    # A device is tied to its own person's sign-in alone; whoever knows its address ends what another has there.
    (
        "signed_in",
        POST,
    ): "accounts:confirm accounts:provider-again accounts:provider-connect accounts:provider-disconnect push:renew",
    ("viewer", SAFE): """
        overview rail-badge brakes:home brakes:banner budgets:home budgets:of-session
        agents:list agents:detail mcp:list mcp:unknown mcp:server
        mcp:tool mcp:sheet mcp:why mcp:matrix mcp:grants mcp:grant chat:list chat:agents chat:search
        chat:attachment chat:thumbnail chat:presence chat:export chat:thread plugins:list
        plugins:detail runs:list runners:list search:find
        search:files sessions:list sessions:rows sessions:image sessions:value sessions:event sessions:ndjson
        sessions:markdown sessions:print sessions:evidence sessions:evidence-zip
        sessions:go sessions:children sessions:nested
        sessions:newest sessions:header sessions:detail sessions:minimap sessions:changes sessions:notes""",
    ("viewer", GET): """
        approvals:inbox approvals:history approvals:export approvals:statistics approvals:detail audit:list
        audit:csv audit:ndjson audit:detail audit:verify audit:verifier audit:proof
        redirects:connect redirects:rules redirects:calls redirects:suggestions redirects:costs
        rules:list costs:show connections:home connections:agent deciders:home""",
    # Asking is not having: mcp:ask makes a request that an approver decides. The others count and list recorded calls.
    ("viewer", BOTH): "mcp:ask rules:calls rules:suggestions",
    # How far they themselves have read; and what rules would decide, which changes nothing.
    ("viewer", POST): "chat:read rules:trial",
    ("approver", GET): "approvals:notifications push:waiting",
    ("approver", BOTH): "approvals:always runs:new sessions:resume sessions:rename",
    ("approver", POST): """
        agents:power brakes:put-on brakes:release budgets:allow
        approvals:decide approvals:confirm-set
        approvals:decide-set approvals:triage approvals:seen approvals:notification-add
        approvals:notification-remove approvals:notification-about approvals:quiet-hours
        approvals:notification-test approvals:revoke push:deny push:key push:subscribe
        rules:save mcp:accept mcp:preview mcp:save
        mcp:accepted-only
        mcp:revoke mcp:extend chat:say plugins:grant plugins:revoke runs:stop runs:release sessions:command
        sessions:note sessions:prompt sessions:stop sessions:stop-turn sessions:unqueue
        rules:accept-suggestion deciders:delegate deciders:delegation-end""",
    ("admin", SAFE): "style",
    ("admin", GET): "approvals:escalation",
    ("admin", BOTH): """
        agents:new budgets:edit
        agents:edit agents:delete agents:password mcp:add mcp:edit mcp:delete mcp:paste chat:clear
        keys:list sessions:delete""",
    ("admin", POST): """
        budgets:add budgets:remove agents:assign agents:withdraw approvals:escalation-add approvals:escalation-remove
        deciders:save deciders:group-make deciders:group-change deciders:group-delete
        costs:save-prices connections:code connections:key
        connections:test keys:bind mcp:accept-command mcp:isolation
        mcp:credential-remove mcp:credential-set mcp:switch mcp:upstream
        mcp:discover chat:delete-message keys:revoke plugins:switch plugins:register runners:deregister""",
}
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    name: (who, tuple(methods.split())) for (who, methods), names in _PAGES.items() for name in names.split()
}

ADMIN_PAGES = {
    "index", "login", "logout", "password_change", "password_change_done", "autocomplete", "jsi18n",
    "view_on_site", "app_list", "auth_user_password_change",
}  # fmt: skip
_TO_LOOK_AT = """
    auth_group coordinator_acceptedonlyserver coordinator_apikey coordinator_askinggrant
    coordinator_brake coordinator_budget coordinator_budgetmark coordinator_auditcheckpoint coordinator_auditdelivery
    coordinator_auditkey coordinator_auditleaf coordinator_auditlog coordinator_auditnode
    coordinator_blueprint coordinator_callback coordinator_capability coordinator_change
    coordinator_chatattachment coordinator_chatbranch
    coordinator_chatmessage coordinator_connectcode
    coordinator_decidingrule coordinator_delegation coordinator_deletedagent
    coordinator_draft coordinator_drivencall coordinator_drivencommand coordinator_drivensession
    coordinator_escalation coordinator_escalationstep
    coordinator_event coordinator_eventcontext coordinator_eventorigin
    coordinator_gatewaycall coordinator_gatewayfigures coordinator_gatewaylink coordinator_gatewaysession
    coordinator_grant coordinator_heldrun
    coordinator_idempotencykey coordinator_installationsetting
    coordinator_keystorageday
    coordinator_lease coordinator_livingexecutor coordinator_mcpprocess
    coordinator_mcptool
    coordinator_mcpupstream coordinator_messagepart
    coordinator_modelprice coordinator_note coordinator_notification coordinator_notificationtarget
    coordinator_permissioncontext coordinator_permissionrequest coordinator_permissionvote coordinator_provideridentity
    coordinator_pushkey coordinator_pushsubscription coordinator_quiethours
    coordinator_readmark coordinator_requestassignment coordinator_requestsnooze
    coordinator_revokedkey coordinator_rightsversion coordinator_run coordinator_runner
    coordinator_runneroffers
    coordinator_runparameters
    coordinator_runtimeplugin coordinator_session coordinator_sessionchange coordinator_sessionkey
    coordinator_sessionowner
    coordinator_sessiontitle
    coordinator_sessionwriter
    coordinator_setuptoken coordinator_stopcommand coordinator_storedfile coordinator_toolrule
    coordinator_usageday"""
ADMIN_TABLES: dict[str, str] = {
    "auth_user": "add change delete",
    "coordinator_agent": "add change delete",
    "coordinator_dangermark": "add change delete",
    "coordinator_mcpserver": "add change delete",
    "coordinator_pluginsetting": "add change delete",
    **dict.fromkeys(_TO_LOOK_AT.split(), ""),
}

R, A, O, READ = "runner", "agent", "operator", "read"  # noqa: E741
EVERYBODY = f"{R} {A} {O} {READ}"
API: dict[str, str] = {
    "GET /health": "anyone",
    "GET /hooks/<agent>/plugin.js": "anyone",
    "GET /api/docs": "anyone",
    "GET /api/openapi.json": "anyone",
    "POST /api/connect/exchange": "anyone",  # with a code that an administrator made
    "GET /sessions": EVERYBODY,
    "GET /sessions/<session_id>": EVERYBODY,
    "GET /sessions/<session_id>/status": EVERYBODY,
    "GET /sessions/<session_id>/result": EVERYBODY,
    "GET /sessions/<session_id>/affinity": EVERYBODY,
    "GET /sessions/<session_id>/events": EVERYBODY,
    "DELETE /sessions/<session_id>": f"{R} {O}",
    "POST /sessions/<session_id>/bind": f"{R} {O}",
    "PATCH /sessions/<session_id>/metadata": f"{R} {O}",
    "POST /sessions/<session_id>/stop": f"{R} {O}",
    "GET /runs": EVERYBODY,
    "POST /runs": f"{R} {O}",
    "GET /runs/<run_id>": EVERYBODY,
    "POST /runs/<run_id>/stop": f"{R} {O}",
    "POST /runner/register": R,
    "POST /runner/heartbeat": R,
    "POST /runner/runs/<run_id>/started": R,
    "POST /runner/runs/<run_id>/completed": R,
    "POST /runner/runs/<run_id>/failed": R,
    "POST /runner/runs/<run_id>/stopped": R,
    "POST /runner/sessions/<session_id>/gateway": R,
    "POST /runner/sessions/<session_id>/status": R,
    "GET /runners": f"{R} {O} {READ}",
    "DELETE /runners/<runner_id>": f"{R} {O}",
    "GET /agents": EVERYBODY,
    "POST /agents": O,
    "GET /agents/<name>": EVERYBODY,
    "PATCH /agents/<name>": O,
    "DELETE /agents/<name>": O,
    "PATCH /agents/<name>/status": O,
    "GET /capabilities": EVERYBODY,
    "POST /capabilities": O,
    "GET /capabilities/<name>": EVERYBODY,
    "PATCH /capabilities/<name>": O,
    "DELETE /capabilities/<name>": O,
    "POST /api/permission-requests": f"{R} {A} {O}",
    "GET /api/permission-requests": f"{O} {READ}",
    "GET /api/permission-requests/check": EVERYBODY,
    "GET /api/permission-requests/<request_id>": EVERYBODY,
    "GET /api/permission-requests/<request_id>/wait": EVERYBODY,
    "DELETE /api/permission-requests/<request_id>": f"{R} {A} {O}",
    "POST /api/access/check": EVERYBODY,
    "GET /api/access/agents/<agent_id>": EVERYBODY,
    "GET /api/mcp/servers": f"{O} {READ}",
    "GET /api/mcp/servers/<name>/access": f"{O} {READ}",
    "PUT /api/mcp/servers/<name>/access": "people",
    "GET /api/mcp/access/by-agent/<agent_id>": EVERYBODY,
    "PUT /api/mcp/access/by-agent/<agent_id>": "people",
    "GET /api/agents": f"{A} {O} {READ}",
    "POST /api/agents/<path:agent_id>/heartbeat": f"{A} {O}",
    "POST /api/agents/<path:agent_id>/power": O,
    "GET /api/chat/attachments/<attachment_id>": f"{A} {O} {READ}",
    "GET /api/chat/<path:agent_id>/messages": f"{A} {O} {READ}",
    "POST /api/chat/<path:agent_id>/messages": f"{A} {O}",
    "GET /api/chat/<path:agent_id>/messages/wait": f"{A} {O} {READ}",
}

EDGE: dict[tuple[str, str], str] = {
    ("POST", r"/sessions/([^/]+)/events"): f"{R} {A} {O}",
    ("POST", r"/api/events"): f"{R} {A} {O}",
    ("POST", r"/api/access/check"): EVERYBODY,
    ("POST", r"/hooks/([^/]+)"): A,
    ("POST", r"/runner/sessions/([^/]+)/updates"): R,
    ("POST", r"/runner/sessions/([^/]+)/permission"): R,
    ("POST", r"/runner/sessions/([^/]+)/permission/withdraw"): R,
    ("POST", r"/api/mcp/calls"): A,
    ("POST", r"/api/mcp/calls/([^/]+)/cancel"): A,
    ("POST", r"/api/mcp/calls/([^/]+)/end"): A,
    ("POST", r"/api/mcp/listings/(.+)"): A,
    **{(method, r"/mcp"): A for method in ("POST", "GET", "DELETE")},
    ("POST", r"/mcp/(.+)"): A,
    ("GET", r"/mcp/(.+)"): A,
    ("DELETE", r"/mcp/(.+)"): A,
    ("POST", r"/v1/logs"): f"{R} {A} {O}",
    ("POST", r"/v1/traces"): f"{R} {A} {O}",
    ("POST", r"/v1/metrics"): f"{R} {A} {O}",
    ("GET", r"/api/permission-requests/([^/]+)/wait"): EVERYBODY,
    ("GET", r"/api/chat/(.+)/messages/wait"): f"{A} {O} {READ}",
    ("GET", r"/runner/runs"): R,
    ("GET", r"/sse/sessions"): EVERYBODY,
    ("GET", r"/ui/live/"): "viewer",
    ("GET", r"/health/ready"): "anyone",
    ("GET", r"/metrics"): f"{O} {READ}",  # and programs on this very machine without a key
}
# A question, not a change: what it denies is noted in the audit log, as every refusal is.
POSTS_THAT_ONLY_ASK = {"POST /api/access/check"}
