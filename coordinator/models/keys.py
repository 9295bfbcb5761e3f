"""API keys, keys that stay refused for ever, and what is good once: the set-up link's token, codes to connect with."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField, JsonTextField, MsField


class ApiKey(models.Model):
    """A machine's key, shown once and kept as a SHA-256; it may do what its scopes say until it expires.

    `prefix` is the key's first characters, so that people can distinguish keys; `agent_id` binds an agent's key
    to that agent, `agent_ids` (a list, in place of `agent_id`) to several.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.TextField(unique=True)
    prefix = models.TextField()
    key_hash = models.TextField(unique=True)
    scopes = JsonTextField()
    agent_id = models.TextField(null=True, blank=True)
    agent_ids = JsonTextField(null=True, blank=True)
    created_at = IsoTextField()
    created_by = models.TextField(null=True, blank=True)
    expires_at = IsoTextField(null=True, blank=True)
    last_used_at = IsoTextField(null=True, blank=True)
    revoked_at = IsoTextField(null=True, blank=True)

    class Meta:
        db_table = "api_keys"
        verbose_name = "API key"

    def __str__(self) -> str:
        return self.name

    @property
    def scope_names(self) -> list[str]:
        """The key's scopes; none where the column does not hold a list."""
        return [str(scope) for scope in self.scopes] if isinstance(self.scopes, list) else []

    @property
    def bound_agent_ids_or_none(self) -> frozenset[str] | None:
        """The agents that the key speaks for; None where it is bound to none. An unreadable list holds nobody."""
        if self.agent_id is not None:
            return frozenset({self.agent_id})
        if self.agent_ids is None:
            return None
        return frozenset(map(str, self.agent_ids)) if isinstance(self.agent_ids, list) else frozenset()

    @property
    def agent_names(self) -> list[str]:
        """The agents that the key is bound to, in order."""
        return sorted(self.bound_agent_ids_or_none or ())


class SessionKey(models.Model):
    """The key by which a driven agent calls the MCP gateway, as a SHA-256: made for one session, gone with its process.

    Its scope is the gateway alone (identity.scopes.GATEWAY). It speaks as `agent_id`; `runner_id` was given it.
    """

    id = models.BigAutoField(primary_key=True)
    key_hash = models.TextField(unique=True)
    session_id = models.TextField()
    agent_id = models.TextField()
    runner_id = models.TextField()
    created_at = IsoTextField()
    expires_at = IsoTextField()

    class Meta:
        db_table = "session_keys"
        indexes = [models.Index(fields=["session_id"], name="sbx_session_keys_session")]

    def __str__(self) -> str:
        return f"{self.agent_id} in {self.session_id}"


class KeyStorageDay(models.Model):
    """The bytes of events that a key had stored on one day (UTC, `2026-11-22`), see actions.people.key_quotas."""

    id = models.BigAutoField(primary_key=True)
    key_id = models.BigIntegerField()
    day = models.TextField()
    bytes = models.BigIntegerField()

    class Meta:
        db_table = "key_storage_days"
        constraints = [models.UniqueConstraint(fields=["key_id", "day"], name="sbx_key_storage_days_once")]

    def __str__(self) -> str:
        return f"key {self.key_id} on {self.day}"


class RevokedKey(models.Model):
    """The hash of a key that is refused for ever, even if its row in `api_keys` is gone or comes back."""

    key_hash = models.TextField(primary_key=True)
    revoked_at = MsField()

    class Meta:
        db_table = "revoked_keys"

    def __str__(self) -> str:
        return str(self.key_hash)


class SetupToken(models.Model):
    """The token of the set-up link, as a SHA-256; good for one use, while there are no users."""

    token_hash = models.TextField(primary_key=True)
    created_at = IsoTextField()
    used_at = IsoTextField(null=True, blank=True)

    class Meta:
        db_table = "setup_tokens"

    def __str__(self) -> str:
        return self.token_hash


class InstallationSetting(models.Model):
    """What this installation does, where that is stored rather than configured: by name, with who changed it last."""

    name = models.TextField(primary_key=True)
    value = models.TextField()
    changed_at = IsoTextField()
    changed_by = models.TextField()

    class Meta:
        db_table = "installation_settings"

    def __str__(self) -> str:
        return self.name


class ConnectCode(models.Model):
    """A code that a machine exchanges for a key, kept as a keyed hash; good for one use, and for minutes.

    The key is called `key_name`, has the scope `agent`, is bound to `agent_id` where there is one, and counts as
    made by the person `made_by` (their id). `used_from` is the address that the code was used from.
    """

    code_hash = models.TextField(primary_key=True)
    key_name = models.TextField()
    agent_id = models.TextField(null=True, blank=True)
    made_by = models.BigIntegerField()
    created_at = IsoTextField()
    expires_at = IsoTextField()
    used_at = IsoTextField(null=True, blank=True)
    used_from = models.TextField(null=True, blank=True)

    class Meta:
        db_table = "connect_codes"

    def __str__(self) -> str:
        return self.key_name
