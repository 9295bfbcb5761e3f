"""The MCP gateway: where servers are reached, the sessions of clients that have some, and calls that were held."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from coordinator.models.fields import IsoTextField, JsonTextField

BY_GATEWAY = "gateway"  # the source of events that the gateway reports
# The executor_profile of sessions for calls of which it is not known in which session of their agent they are made.
GATEWAY_PROFILE = "mcp-gateway"


class Transport(models.TextChoices):
    """How a server is spoken to."""

    HTTP = "http", "HTTP"
    STDIO = "stdio", "stdio"


class Sharing(models.TextChoices):
    """Whether all callers share a stdio server's process, or each caller has one of its own."""

    SHARED = "shared"
    CALLER = "caller"


class Network(models.TextChoices):
    """What a server that Signalbox starts may connect to. `machine` is all that the machine itself reaches."""

    NONE = "none", "No network"
    MACHINE = "machine", "Everything that this machine reaches"


class McpUpstream(models.Model):
    """How the gateway reaches a registered server. One without a row is started by its command, if it has one.

    The server is a plain id, as in grants. `private_network`: an admin said that the address may be one of this
    network; others are refused. `call_seconds` is how long a call may take. `accepted_command` is the digest of the
    command, arguments, variables and isolation that an admin accepted last (mcp.servers.commands): others are not
    started. `network`, the folders (lists of paths) and `is_isolation_off` say how a started server is isolated
    (mcp.isolation).
    """

    server_id = models.TextField(primary_key=True)
    transport = models.TextField(choices=Transport.choices, default=Transport.HTTP)
    url = models.TextField(null=True, blank=True)
    sharing = models.TextField(choices=Sharing.choices, default=Sharing.SHARED)
    private_network = models.BooleanField(default=False)
    call_seconds = models.IntegerField(default=300)
    enabled = models.BooleanField(default=True)
    changed_at = IsoTextField()
    accepted_command = models.TextField(null=True, blank=True)
    network = models.TextField(choices=Network.choices, default=Network.NONE, db_default=Network.NONE.value)
    folders = JsonTextField(null=True, blank=True)
    writable_folders = JsonTextField(null=True, blank=True)
    is_isolation_off = models.BooleanField(default=False, db_default=False)

    class Meta:
        verbose_name_plural = "MCP upstreams"
        db_table = "mcp_upstreams"
        verbose_name = "MCP upstream"

    def __str__(self) -> str:
        return self.server_id


class GatewaySession(models.Model):
    """The session of an MCP client of the versions before 2026-07-28: what it said when it began.

    It is stored in the table, so that any worker, and a restarted server, goes on with it. `door` is the server whose
    endpoint it came to, nothing at the endpoint of all servers.
    """

    session_id = models.TextField(primary_key=True)
    door = models.TextField()
    key_id = models.BigIntegerField()
    agent_id = models.TextField()
    protocol_version = models.TextField()
    client = JsonTextField(null=True, blank=True)
    capabilities = JsonTextField(null=True, blank=True)
    created_at = IsoTextField()
    used_at = IsoTextField()

    class Meta:
        db_table = "mcp_gateway_sessions"

    def __str__(self) -> str:
        return f"{self.agent_id} at {self.door or 'all servers'}"


class GatewayLink(models.Model):
    """A server's own session within one of a client's. `upstream_session` is sealed; NULL where the server has none."""

    session_id = models.TextField()
    server_id = models.TextField()
    upstream_session = models.TextField(null=True, blank=True)
    protocol_version = models.TextField()

    class Meta:
        db_table = "mcp_gateway_links"
        constraints = [
            models.UniqueConstraint(fields=["session_id", "server_id"], name="sbx_gateway_links_server")
        ]

    def __str__(self) -> str:
        return f"{self.server_id} in {self.session_id}"


class CallState(models.TextChoices):
    """The state of a pending call. A running one whose process is gone is lost: nobody knows how it ended."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DENIED = "denied"
    CANCELLED = "cancelled"
    LOST = "lost"


class GatewayCall(models.Model):
    """A call that a person was asked about, by what its approval is bound to.

    `call_key` is the digest of all that was asked (policy.requests.approvals.call_digest). `state` moves by
    compare-and-swap: the worker that makes it `running` sends the call, and no other ever does. `message` (the request)
    and `result` (the response) are sealed, and kept for a client that polls or lost its response stream; of a call that
    waits on such a stream, `message` is the client's id for it, by which it can be cancelled. `delivered_at` says when
    the result was handed over. `worker` is the process that runs it. `rounds` counts how often the server asked for
    more before it answered (2026-07-28): each of its questions can be answered once. A call that is `done` with such a
    question as its result goes on, and runs again, once that is answered; a task keeps its `message` for that.
    """

    call_id = models.TextField(primary_key=True)
    request_id = models.TextField(null=True, blank=True)
    key_id = models.BigIntegerField()
    agent_id = models.TextField()
    server_id = models.TextField()
    tool_name = models.TextField()
    session_id = models.TextField(null=True, blank=True)
    gateway_session = models.TextField(null=True, blank=True)
    call_key = models.TextField()
    arguments_digest = models.TextField()
    definition_digest = models.TextField()
    policy_version = models.TextField()
    is_task = models.BooleanField(default=False)
    rounds = models.IntegerField(default=0)
    state = models.TextField(choices=CallState.choices)
    message = models.TextField(null=True, blank=True)
    result = models.TextField(null=True, blank=True)
    worker = models.TextField(null=True, blank=True)
    created_at = IsoTextField()
    expires_at = IsoTextField()
    started_at = IsoTextField(null=True, blank=True)
    run_until = IsoTextField(null=True, blank=True)
    ended_at = IsoTextField(null=True, blank=True)
    delivered_at = IsoTextField(null=True, blank=True)

    class Meta:
        db_table = "mcp_gateway_calls"
        indexes = [
            models.Index(fields=["call_key", "created_at"], name="sbx_gateway_calls_key"),
            models.Index(fields=["request_id"], name="sbx_gateway_calls_request"),
            models.Index(fields=["state"], name="sbx_gateway_calls_state"),
            models.Index(fields=["created_at"], name="sbx_gateway_calls_created"),
            models.Index(fields=["expires_at"], name="sbx_gateway_calls_expires"),
            models.Index(
                fields=["ended_at"], name="sbx_gateway_calls_ended", condition=Q(result__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool_name} of {self.server_id} for {self.agent_id}"


class GatewayFigures(models.Model):
    """What calls of one tool came to within an hour: counts, and how long they took, as counts by upper bound.

    `outcome` is ok, error, denied or failed; `upstream` and `own` hold a count for each of gateway.figures.BOUNDS
    and one for what took longer, in milliseconds.
    """

    id = models.BigAutoField(primary_key=True)
    server_id = models.TextField()
    tool_name = models.TextField()
    hour = IsoTextField()
    outcome = models.TextField()
    calls = models.BigIntegerField()
    upstream = JsonTextField()
    own = JsonTextField()

    class Meta:
        verbose_name_plural = "gateway figures"
        db_table = "mcp_gateway_figures"
        constraints = [
            models.UniqueConstraint(
                fields=["server_id", "tool_name", "hour", "outcome"], name="sbx_gateway_figures_hour"
            )
        ]

    def __str__(self) -> str:
        return f"{self.calls} {self.outcome} of {self.tool_name} of {self.server_id}"
