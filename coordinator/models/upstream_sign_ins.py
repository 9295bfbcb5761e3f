"""Access tokens (OAuth) for MCP servers: how they are asked for, and which were issued to whom."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from coordinator.models.fields import IsoTextField, JsonTextField


class SignInMode(models.TextChoices):
    """Whose access token goes with a request to a server."""

    PERSON = "person", "Each person signs in"
    SHARED = "shared", "One sign-in for everybody"
    CLIENT = "client", "Nobody signs in: client credentials"


class McpAuthorization(models.Model):
    """How Signalbox gets access tokens for a server. A server without a row needs none.

    `server_url` is the address that it was set up for: no token goes to another one. `endpoints` are what the
    authorization server published of itself, checked (coordinator.mcp.protocol.oauth.AuthorizationEndpoints).
    `client_secret` is sealed. `registered_for` is the redirect address that the client was registered with by
    Signalbox itself; empty where an administrator entered the client, or its metadata document names it.
    """

    Mode = SignInMode

    server_id = models.TextField(primary_key=True)
    mode = models.TextField(choices=SignInMode.choices)
    server_url = models.TextField()
    scopes = models.TextField(blank=True, default="", db_default="")
    endpoints = JsonTextField()
    client_id = models.TextField()
    client_secret = models.TextField(null=True, blank=True)
    client_auth = models.TextField()
    registered_for = models.TextField(blank=True, default="", db_default="")
    changed_by = models.TextField()
    changed_at = IsoTextField()

    class Meta:
        db_table = "mcp_authorizations"
        verbose_name = "MCP server's authorization"

    def __str__(self) -> str:
        return f"{self.server_id}: {self.mode}"


class McpAccessToken(models.Model):
    """The access token of one person for a server, or of Signalbox itself: then `user_id` (of auth_user) is NULL.

    The tokens are sealed. Without `access_token`, or with a `problem`, somebody has to sign in. The process that
    renews the token holds the row until `renewing_until`.
    """

    id = models.BigAutoField(primary_key=True)
    server_id = models.TextField()
    user_id = models.BigIntegerField(null=True, blank=True)
    access_token = models.TextField(null=True, blank=True)
    refresh_token = models.TextField(null=True, blank=True)
    scopes = models.TextField(blank=True, default="", db_default="")
    issued_at = IsoTextField(null=True, blank=True)
    expires_at = IsoTextField(null=True, blank=True)
    renewing_until = IsoTextField(null=True, blank=True)
    problem = models.TextField(null=True, blank=True)

    class Meta:
        db_table = "mcp_access_tokens"
        verbose_name = "MCP access token"
        constraints = [
            models.UniqueConstraint(fields=["server_id", "user_id"], name="sbx_mcp_tokens_person"),
            models.UniqueConstraint(
                fields=["server_id"], condition=Q(user_id__isnull=True), name="sbx_mcp_tokens_shared"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.server_id} for {self.user_id or 'everybody'}"

    @property
    def needs_sign_in(self) -> bool:
        """Whether somebody has to sign in before the server can be used."""
        problem: Any = self.problem
        return not self.access_token or bool(problem)


class McpAgentPerson(models.Model):
    """The person (`user_id` of auth_user) with whose access tokens an agent calls servers at which people sign in.

    The agent is a plain id, as in grants. It gives no right: grants and rules decide about each call as before.
    """

    agent_id = models.TextField(primary_key=True)
    user_id = models.BigIntegerField()
    changed_by = models.TextField()
    changed_at = IsoTextField()

    class Meta:
        db_table = "mcp_agent_people"
        verbose_name = "person of an MCP agent"
        verbose_name_plural = "people of MCP agents"

    def __str__(self) -> str:
        return f"{self.agent_id} for {self.user_id}"
