"""The rules that people set for the tools of coding agents."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField, JsonTextField


class RuleVerdict(models.TextChoices):
    """What a rule says of a call."""

    ALLOW = "allow", "Allow"
    DENY = "deny", "Deny"
    ASK = "ask", "Ask a person"
    OBSERVE = "observe", "Only observe"


class ToolRule(models.Model):
    """One rule; of several that fit a call the first by `position` decides.

    `tool` names tools (`Bash`, `Edit|Write`, `mcp__github__*`), `pattern` is a regular expression on what the
    call is about (its command, path or address). `agents` NULL means all. `wait_seconds` and `deny_at_deadline`
    say for how long a person is asked, and whether silence denies. `program` names the agent program whose calls it is
    for (agent_programs.AGENT_TITLES); nothing means every one. `runs`, `touches` and `reaches` are terms, one a line:
    what a call runs, which paths it touches, which hosts it reaches. `unreadable` says what becomes of calls of which a
    part cannot be read. `ready_made` names the ready-made rule that this is. A rule that `is_off` decides nothing.
    `repeats` is the repetition about which it is (policy.rules.call_history). A denial of one that `stops_turn` also
    ends the turn.
    """

    id = models.BigAutoField(primary_key=True)
    position = models.BigIntegerField()
    tool = models.TextField()
    pattern = models.TextField(default="", db_default="", blank=True)
    verdict = models.TextField(choices=RuleVerdict.choices)
    agents = JsonTextField(null=True, blank=True)
    reason = models.TextField(default="", db_default="", blank=True)
    wait_seconds = models.BigIntegerField(null=True, blank=True)
    deny_at_deadline = models.BooleanField(default=False, db_default=False)
    program = models.TextField(default="", db_default="", blank=True)
    runs = models.TextField(default="", db_default="", blank=True)
    touches = models.TextField(default="", db_default="", blank=True)
    reaches = models.TextField(default="", db_default="", blank=True)
    unreadable = models.TextField(default="", db_default="", blank=True)
    ready_made = models.TextField(default="", db_default="", blank=True)
    is_off = models.BooleanField(default=False, db_default=False)
    repeats = models.TextField(default="", db_default="", blank=True)
    stops_turn = models.BooleanField(default=False, db_default=False)
    changed_at = IsoTextField()
    changed_by = models.TextField()

    class Meta:
        db_table = "tool_rules"

    def __str__(self) -> str:
        return f"{self.verdict} {self.tool} {self.pattern}".strip()


class KnownHost(models.Model):
    """A host that calls of a project reach with a person's approval: the first one, which its request names.

    `folder` is the project's. Nothing but an approval writes a row; a revoked approval takes its rows along.
    """

    id = models.BigAutoField(primary_key=True)
    folder = models.TextField()
    host = models.TextField()
    request_id = models.TextField()
    approved_by = models.TextField()
    approved_at = IsoTextField()

    class Meta:
        db_table = "known_hosts"
        constraints = [models.UniqueConstraint(fields=["folder", "host"], name="known_hosts_once")]
        indexes = [models.Index(fields=["request_id"], name="known_hosts_request")]

    def __str__(self) -> str:
        return f"{self.host} in {self.folder}"


class DismissedSuggestion(models.Model):
    """A suggested rule that somebody does not want to see again.

    `digest` is of what the suggestion is about (policy.suggestions.search), `label` says it to people.
    """

    digest = models.TextField(primary_key=True)
    label = models.TextField()
    dismissed_by = models.TextField()
    dismissed_at = IsoTextField()

    class Meta:
        db_table = "dismissed_suggestions"

    def __str__(self) -> str:
        return self.label
