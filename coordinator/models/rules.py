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
    part cannot be read. `ready_made` names the ready-made rule that this is.
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
    changed_at = IsoTextField()
    changed_by = models.TextField()

    class Meta:
        db_table = "tool_rules"

    def __str__(self) -> str:
        return f"{self.verdict} {self.tool} {self.pattern}".strip()
