"""MCP servers and who may use which of their tools."""

from __future__ import annotations

from datetime import datetime

from django.db import models

from coordinator.models.fields import IsoTextField, JsonTextField, SecondsField


class DefaultPolicy(models.TextChoices):
    """What holds where no grant decides: opt-in denies, opt-out allows, anything else denies."""

    OPT_IN = "opt-in"
    OPT_OUT = "opt-out"


class EntryType(models.TextChoices):
    """What a grant is about. The database refuses any other word."""

    CAPABILITY = "capability"
    SERVER_GRANT = "server_grant"
    TOOL_GRANT = "tool_grant"


class GrantPermission(models.TextChoices):
    """The permission in a grant's row. The database takes any word; anything but `allow` denies."""

    ALLOW = "allow"
    DENY = "deny"


class GrantWord(models.TextChoices):
    """What a grant says. The table of grants, which other programs read, knows no asking: see `AskingGrant`."""

    ALLOW = "allow", "Allow"
    ASK = "ask", "Ask"
    DENY = "deny", "Deny"


class McpServer(models.Model):
    """One MCP server that agents may be given: how it is started, and what holds without a grant."""

    DefaultPolicy = DefaultPolicy

    name = models.TextField(primary_key=True)
    command = models.TextField()
    args = JsonTextField(default=list, db_default=models.Value("[]"))
    script_content = models.TextField(null=True, blank=True)
    description = models.TextField(null=True, blank=True)
    created_at = SecondsField()
    is_active = models.BooleanField(default=True, db_default=True)
    default_policy = models.TextField(default="opt-in", db_default="opt-in")

    class Meta:
        db_table = "mcp_servers"
        verbose_name = "MCP server"

    def __str__(self) -> str:
        return str(self.name)


class CredentialKind(models.TextChoices):
    """Where a credential goes: into the environment of a server's process, or onto each request to it."""

    ENV = "env", "Environment variable"
    HEADER = "header", "HTTP header"


class McpCredential(models.Model):
    """What a server is let in with. Its value is sealed (secrets.keyring) or `env:NAME`, and never shown."""

    Kind = CredentialKind

    pk = models.CompositePrimaryKey("server_id", "kind", "name")
    server = models.ForeignKey(
        McpServer,
        models.DO_NOTHING,  # the database cascades
        db_index=False,
        related_name="credentials",
    )
    kind = models.TextField(choices=CredentialKind.choices)
    name = models.TextField()
    value = models.TextField()
    set_by = models.TextField()
    set_at = IsoTextField()

    class Meta:
        db_table = "mcp_credentials"

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of {self.server_id}"


class AcceptedOnlyServer(models.Model):
    """Of this server, a tool whose definition changed is not served before a person accepted the change."""

    server = models.OneToOneField(
        McpServer,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        related_name="accepted_only",
    )

    class Meta:
        db_table = "accepted_only_servers"

    def __str__(self) -> str:
        return f"{self.server_id} serves accepted tools only"


class ListedTools(models.TextChoices):
    """Which tools an agent's model is shown. It decides nothing about which it may call."""

    ALL = "all", "All tools"
    CHOSEN = "chosen", "Chosen tools"
    SEARCH = "search", "Search"


class AgentToolListing(models.Model):
    """Which tools an agent's model is shown by the gateway. An agent without a row is shown all that it may call.

    `tools` are the server and the name of each chosen tool, as pairs. The agent is a plain id, as in grants.
    """

    Listed = ListedTools

    agent_id = models.TextField(primary_key=True)
    listed = models.TextField(choices=ListedTools.choices)
    tools = JsonTextField(default=list, db_default=models.Value("[]"))
    changed_by = models.TextField()
    changed_at = IsoTextField()

    class Meta:
        db_table = "agent_tool_listings"

    def __str__(self) -> str:
        return f"{self.agent_id} is shown {self.listed}"


class ToolCollection(models.Model):
    """Chosen tools of several servers, which `/mcp/collections/NAME` serves. It grants nothing and denies nothing.

    `tools` are the server and the name of each tool, as pairs; an empty name stands for all tools of the server. The
    servers are plain ids, as in grants.
    """

    name = models.TextField(primary_key=True)
    description = models.TextField(blank=True)
    tools = JsonTextField(default=list, db_default=models.Value("[]"))
    changed_by = models.TextField()
    changed_at = IsoTextField()

    class Meta:
        db_table = "tool_collections"

    def __str__(self) -> str:
        return self.name


class McpProcess(models.Model):
    """The state of a stdio server's process, as its host last reported it (coordinator.mcp.hosting).

    `caller` is "" where all callers share the process, else a digest of whose it is. `state` is running, stopped or
    failed, `since` when that began; `last_words` the end of what a failed one said.
    """

    id = models.BigAutoField(primary_key=True)
    server_id = models.TextField()
    caller = models.TextField()
    state = models.TextField()
    pid = models.BigIntegerField(null=True)
    starts = models.BigIntegerField()
    failures = models.BigIntegerField()
    last_words = models.TextField()
    since = IsoTextField()

    class Meta:
        verbose_name_plural = "MCP processes"
        db_table = "mcp_processes"
        constraints = [
            models.UniqueConstraint(fields=["server_id", "caller"], name="sbx_mcp_processes_place")
        ]

    def __str__(self) -> str:
        return f"{self.server_id} {self.state}"


class GrantQuerySet(models.QuerySet["Grant"]):
    """Grants by their state at an instant."""

    def not_ended(self, now: datetime) -> GrantQuerySet:
        """Return grants that are not over: without an end, before it, or with one that cannot be read."""
        return self.filter(models.Q(expires_at__gt=now) | models.Q(expires_at__instant__isnull=True))

    def already_ended(self, now: datetime) -> GrantQuerySet:
        """Return grants that have ended, by the clock or by a person."""
        return self.filter(expires_at__lte=now)

    def filter_by_effective_permission(self, word: str) -> GrantQuerySet:
        """Return grants that say `word`."""
        asking = models.Q(asks=True, permission__in=GrantPermission.values)
        if word == GrantWord.ASK:
            return self.filter(asking)
        return self.filter(permission=word).exclude(asking)


class GrantManager(models.Manager.from_queryset(GrantQuerySet)):  # type: ignore[misc] # made by a call
    """Grants, each with whether it asks."""

    def get_queryset(self) -> GrantQuerySet:
        """Return every grant with `asks`."""
        rows: GrantQuerySet = super().get_queryset()
        marked = AskingGrant.objects.filter(grant=models.OuterRef("pk"))
        return rows.annotate(asks=models.Exists(marked))  # type: ignore[no-redef] # a default is in the class


class Grant(models.Model):
    """An agent may, or may not, use a server or one of its tools, until it expires.

    Agent and server are plain ids, no foreign keys: a grant may be written before either is known.
    """

    EntryType = EntryType
    Permission = GrantPermission

    id = models.BigAutoField(primary_key=True)
    entry_type = models.TextField()
    agent_id = models.TextField()
    server_id = models.TextField()
    tool_name = models.TextField(null=True, blank=True)
    permission = models.TextField(default="allow", db_default="allow")
    granted_by = models.TextField(null=True, blank=True)
    granted_at = IsoTextField()
    expires_at = IsoTextField(null=True, blank=True)
    justification = models.TextField(null=True, blank=True)
    metadata = JsonTextField(null=True, blank=True)

    # Whether the row has an `AskingGrant`: the manager reads it.
    asks: bool = False

    objects = GrantManager()

    class Meta:
        db_table = "mcp_access_control"

    def __str__(self) -> str:
        return f"{self.effective_permission} {self.agent_id} {self.server_id} {self.tool_name or '*'}"

    @property
    def effective_permission(self) -> str:
        """What the grant says: a GrantPermission, or an unknown word unchanged."""
        return permission_with_ask_flag(self.permission, self.asks)


def permission_with_ask_flag(permission: str, requires_approval: bool) -> str:
    """Return what a row says. One that asks is stored as a denial, so that programs without asking let nothing through.

    The bare word `ask` is another program's, and denies as it always did.
    """
    if requires_approval and permission in GrantPermission.values:
        return GrantWord.ASK.value
    return GrantWord.DENY.value if permission == GrantWord.ASK else permission


class AskingGrant(models.Model):
    """This grant asks: a person must approve each call. A foreign word `ask` in the grants' own table denies."""

    grant = models.OneToOneField(
        Grant,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        related_name="asking",
    )

    class Meta:
        db_table = "asking_grants"

    def __str__(self) -> str:
        return f"grant {self.grant_id} asks"


class McpToolQuerySet(models.QuerySet["McpTool"]):
    """Tools by what a person said of their definitions."""

    def with_changed_definition(self) -> McpToolQuerySet:
        """Return tools whose definition is not the accepted one, and was not declined either."""
        return self.exclude(accepted_hash=models.F("definition_hash")).exclude(
            declined_hash__isnull=False, declined_hash=models.F("definition_hash")
        )

    def with_declined_definition(self) -> McpToolQuerySet:
        """Return tools of whose definition agents are shown the accepted one instead."""
        return self.filter(declined_hash=models.F("definition_hash")).exclude(
            accepted_hash=models.F("definition_hash")
        )


class McpTool(models.Model):
    """One tool of a server as the server last listed it, and as a person last accepted it.

    The two hashes differ where the definition changed and nobody has accepted that yet. `declined_hash` is the
    changed definition that a person declined: while the server lists that one, agents are shown the accepted one.
    Agents are shown `short_description` in place of the server's own while `short_for` is the definition's hash.
    `gone_at` is set while the server does not list the tool. The server is a plain id, as in grants.
    """

    id = models.BigAutoField(primary_key=True)
    server_id = models.TextField()
    name = models.TextField()
    title = models.TextField(null=True, blank=True)
    description = models.TextField(null=True, blank=True)
    input_schema = JsonTextField(null=True, blank=True)
    output_schema = JsonTextField(null=True, blank=True)
    annotations = JsonTextField(null=True, blank=True)
    definition_hash = models.TextField()
    accepted_hash = models.TextField()
    accepted = JsonTextField(null=True, blank=True)
    accepted_by = models.TextField(null=True, blank=True)
    accepted_at = IsoTextField(null=True, blank=True)
    declined_hash = models.TextField(null=True, blank=True)
    declined_by = models.TextField(null=True, blank=True)
    declined_at = IsoTextField(null=True, blank=True)
    first_listed_at = IsoTextField()
    listed_at = IsoTextField()
    changed_at = IsoTextField(null=True, blank=True)
    gone_at = IsoTextField(null=True, blank=True)
    short_description = models.TextField(null=True, blank=True)
    short_for = models.TextField(null=True, blank=True)
    short_by = models.TextField(null=True, blank=True)

    objects = McpToolQuerySet.as_manager()

    class Meta:
        db_table = "mcp_tools"
        verbose_name = "MCP tool"
        constraints = [models.UniqueConstraint(fields=["server_id", "name"], name="sbx_mcp_tools_name")]

    def __str__(self) -> str:
        return f"{self.server_id} {self.name}"

    @property
    def has_undecided_definition_change(self) -> bool:
        """Whether the definition differs from the accepted one, and no person has said what becomes of that."""
        return self.definition_hash not in {self.accepted_hash, self.declined_hash}

    @property
    def has_current_short_description(self) -> bool:
        """Whether agents are shown a description that an administrator wrote for the present definition."""
        return self.short_description is not None and self.short_for == self.definition_hash

    @property
    def is_current_definition_declined(self) -> bool:
        """Whether a person declined the present definition, so that agents are shown the accepted one."""
        return self.definition_hash == self.declined_hash != self.accepted_hash


class RevisionKind(models.TextChoices):
    """What happened to a tool's definition."""

    LISTED = "listed", "Listed"
    ACCEPTED = "accepted", "Accepted"
    DECLINED = "declined", "Declined"


class McpToolRevision(models.Model):
    """One step in the history of a tool's definition: the server listed another one, or a person decided about it.

    `definition` is set where another one was listed; decisions name theirs by `definition_hash`. `size` is how many
    bytes it takes. `changed_by` is empty where the change is older than the history. The server is a plain id, as in
    grants.
    """

    Kind = RevisionKind

    id = models.BigAutoField(primary_key=True)
    server_id = models.TextField()
    tool_name = models.TextField()
    kind = models.TextField(choices=RevisionKind.choices)
    definition_hash = models.TextField()
    definition = JsonTextField(null=True, blank=True)
    size = models.IntegerField(default=0)
    changed_by = models.TextField(blank=True)
    changed_at = IsoTextField()

    class Meta:
        db_table = "mcp_tool_revisions"
        verbose_name = "revision of an MCP tool"
        verbose_name_plural = "revisions of MCP tools"
        indexes = [models.Index(fields=["server_id", "tool_name"], name="sbx_mcp_tool_revisions_tool")]

    def __str__(self) -> str:
        return f"{self.server_id} {self.tool_name} {self.kind}"
