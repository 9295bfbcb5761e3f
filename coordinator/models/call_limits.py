"""Limits of calls through the MCP gateway: what administrators set, and what all workers must know of its use."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField, JsonTextField


class McpCallLimit(models.Model):
    """Limits of a server's calls, or of one tool's where `tool_name` is not empty. NULL: the server's, or none.

    The server is a plain id, as in grants. `call_seconds` is how long a call may take. `calls_per_minute` counts all
    callers together. `result_bytes` is how much of a result reaches the agent at once. `masks_secrets`: secrets in
    results are masked. `marks_addresses`: addresses not seen before are marked, as where it is NULL. `cache_seconds` is
    for how long a result of a read-only tool is answered again, 0 for not at all. `breaker_failures` in a row open the
    server's circuit breaker for `breaker_seconds`; both are set in the server's row only.
    """

    id = models.BigAutoField(primary_key=True)
    server_id = models.TextField()
    tool_name = models.TextField(blank=True, default="")
    call_seconds = models.IntegerField(null=True, blank=True)
    calls_per_minute = models.IntegerField(null=True, blank=True)
    result_bytes = models.IntegerField(null=True, blank=True)
    masks_secrets = models.BooleanField(null=True, blank=True)
    cache_seconds = models.IntegerField(null=True, blank=True)
    marks_addresses = models.BooleanField(null=True, blank=True)
    breaker_failures = models.IntegerField(null=True, blank=True)
    breaker_seconds = models.IntegerField(null=True, blank=True)
    changed_by = models.TextField()
    changed_at = IsoTextField()

    class Meta:
        db_table = "mcp_call_limits"
        verbose_name = "limit of MCP calls"
        verbose_name_plural = "limits of MCP calls"
        constraints = [
            models.UniqueConstraint(fields=["server_id", "tool_name"], name="sbx_mcp_call_limits_tool")
        ]

    def __str__(self) -> str:
        return f"limits of {self.server_id} {self.tool_name or '*'}"


class McpCallRate(models.Model):
    """How far the calls of a server, or of one tool, have used up their rate.

    `used_until` is when the rate is unused again, in seconds since 1970: each call moves it on by its share of a
    minute, and none may move it further than a minute ahead.
    """

    id = models.BigAutoField(primary_key=True)
    server_id = models.TextField()
    tool_name = models.TextField(blank=True, default="")
    used_until = models.FloatField()

    class Meta:
        db_table = "mcp_call_rates"
        verbose_name = "rate of MCP calls"
        verbose_name_plural = "rates of MCP calls"
        constraints = [
            models.UniqueConstraint(fields=["server_id", "tool_name"], name="sbx_mcp_call_rates_tool")
        ]

    def __str__(self) -> str:
        return f"rate of {self.server_id} {self.tool_name or '*'}"


class McpCircuitBreaker(models.Model):
    """The state of a server's circuit breaker. A server without a row has had no failure since its last answer.

    `failures` is how many calls in a row failed. `open_until` is set while it is open: no call is sent before. After
    it one call at a time is tried, until `trial_until` at most; its answer closes the breaker. `last_problem` is how
    the last call failed, as the end of "The server …".
    """

    server_id = models.TextField(primary_key=True)
    failures = models.IntegerField()
    last_problem = models.TextField()
    last_failed_at = IsoTextField()
    open_until = IsoTextField(null=True, blank=True)
    trial_until = IsoTextField(null=True, blank=True)

    class Meta:
        db_table = "mcp_circuit_breakers"
        verbose_name = "circuit breaker of an MCP server"
        verbose_name_plural = "circuit breakers of MCP servers"

    def __str__(self) -> str:
        return f"circuit breaker of {self.server_id}"


class StoredResult(models.Model):
    """The rest of a result that was longer than its limit, for the key and the agent that called.

    `content` is sealed, and so are the call's `arguments`; NULL: they are not known, or it was no call of a tool.
    `part_bytes` is how much of the content is read at once.
    """

    id = models.TextField(primary_key=True)
    server_id = models.TextField()
    tool_name = models.TextField()
    agent_id = models.TextField()
    key_id = models.BigIntegerField()
    arguments = models.TextField(null=True, blank=True)
    content = models.TextField()
    size = models.BigIntegerField()
    part_bytes = models.IntegerField()
    created_at = IsoTextField()
    expires_at = IsoTextField()

    class Meta:
        db_table = "mcp_stored_results"
        verbose_name = "stored result"
        indexes = [models.Index(fields=["agent_id", "created_at"], name="sbx_mcp_stored_results_agent")]

    def __str__(self) -> str:
        return f"rest of a result of {self.tool_name} of {self.server_id}"


class CachedResult(models.Model):
    """A result of a read-only tool that is answered again until it is too old (mcp.gateway.cached_results).

    `key` is a digest of the call, of whose it is, and of all that the result depends on; `scope` of the last alone.
    `content` is sealed, with secrets masked where the tool's limits say so.
    """

    id = models.BigAutoField(primary_key=True)
    key = models.TextField(unique=True)
    scope = models.TextField()
    server_id = models.TextField()
    tool_name = models.TextField()
    agent_id = models.TextField()
    content = models.TextField()
    answered_at = IsoTextField()
    expires_at = IsoTextField()

    class Meta:
        db_table = "mcp_cached_results"
        verbose_name = "cached result"
        indexes = [models.Index(fields=["server_id", "answered_at"], name="sbx_mcp_cached_results_server")]

    def __str__(self) -> str:
        return f"cached result of {self.tool_name} of {self.server_id}"


class CacheGeneration(models.Model):
    """How often cached results of a server were deleted. Without a row: never.

    The result of a call that was sent before the last deletion is not cached: it may be from before a change.
    """

    server_id = models.TextField(primary_key=True)
    deletions = models.BigIntegerField()

    class Meta:
        db_table = "mcp_cache_generations"
        verbose_name = "generation of cached results"
        verbose_name_plural = "generations of cached results"

    def __str__(self) -> str:
        return f"generation {self.deletions} of cached results of {self.server_id}"


class McpResultMark(models.Model):
    """A result of a session in which something may be instructions to the model (mcp.gateway.injection_signs).

    Rules ask for it, so it is written before the agent gets the result.
    """

    id = models.BigAutoField(primary_key=True)
    session_id = models.TextField()
    server_id = models.TextField()
    marks = JsonTextField(default=list)
    marked_at = IsoTextField()

    class Meta:
        db_table = "mcp_result_marks"
        verbose_name = "mark of an MCP result"
        verbose_name_plural = "marks of MCP results"
        indexes = [models.Index(fields=["session_id", "marked_at"], name="sbx_mcp_result_marks_session")]

    def __str__(self) -> str:
        return f"marked result of {self.server_id} in {self.session_id}"


class McpResultHost(models.Model):
    """A host of addresses in a server's results. `session_id` is the last session that had it from this server."""

    id = models.BigAutoField(primary_key=True)
    server_id = models.TextField()
    host = models.TextField()
    session_id = models.TextField()
    seen_at = IsoTextField()

    class Meta:
        db_table = "mcp_result_hosts"
        verbose_name = "host in MCP results"
        verbose_name_plural = "hosts in MCP results"
        constraints = [
            models.UniqueConstraint(fields=["server_id", "host"], name="sbx_mcp_result_hosts_host")
        ]
        indexes = [
            models.Index(fields=["server_id", "seen_at"], name="sbx_mcp_result_hosts_seen"),
            models.Index(fields=["session_id", "host"], name="sbx_mcp_result_hosts_session"),
        ]

    def __str__(self) -> str:
        return f"{self.host} in results of {self.server_id}"


class McpHostLearning(models.Model):
    """How far it is learnt which hosts are usual in a server's results (actions.mcp.result_hosts)."""

    server_id = models.TextField(primary_key=True)
    results = models.IntegerField()
    started_at = IsoTextField()

    class Meta:
        db_table = "mcp_host_learning"
        verbose_name = "learning of hosts"
        verbose_name_plural = "learning of hosts"

    def __str__(self) -> str:
        return f"hosts of {self.server_id} after {self.results} results"
