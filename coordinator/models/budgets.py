"""Budgets: how much agents may use, and who was notified of it."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField


class BudgetReach(models.TextChoices):
    """Whose use is counted. A person's are the sessions that they, or keys that they made, began."""

    EVERYTHING = "everything", "Everything"
    AGENT = "agent", "One agent"
    PERSON = "person", "One person"
    HOST = "host", "One host"
    FOLDER = "folder", "One folder and those below it"
    MODEL = "model", "One model"


class BudgetSpan(models.TextChoices):
    """What the limit is for: a period of the installation's time zone, or each session as a whole."""

    DAY = "day", "A day"
    WEEK = "week", "A week (from Monday)"
    MONTH = "month", "A calendar month"
    SESSION = "session", "Each session"


class BudgetMeasure(models.TextChoices):
    """What is counted."""

    TOKENS = "tokens", "Tokens"
    MONEY = "money", "Money (US dollars)"
    CALLS = "calls", "Tool calls"


class AtLimit(models.TextChoices):
    """What happens once all of it is used."""

    WARN = "warn", "Warn"
    ASK = "ask", "Ask about each further call"
    HOLD = "hold", "Deny further calls and runs"


class Budget(models.Model):
    """One budget, in force until `ended_at`; not applied until `allowed_until`, where a person said so.

    `name` is the agent (its id, or the program's name), the person, host, folder or model; nothing where everything
    counts.
    """

    id = models.BigAutoField(primary_key=True)
    reach = models.TextField(choices=BudgetReach.choices)
    name = models.TextField(default="", db_default="", blank=True)
    span = models.TextField(choices=BudgetSpan.choices)
    measure = models.TextField(choices=BudgetMeasure.choices)
    amount = models.FloatField()
    at_limit = models.TextField(choices=AtLimit.choices)
    changed_at = IsoTextField()
    changed_by = models.TextField()
    allowed_until = IsoTextField(null=True)
    allowed_by = models.TextField(null=True)
    ended_at = IsoTextField(null=True)

    class Meta:
        db_table = "budgets"

    def __str__(self) -> str:
        return f"budget of {self.name or self.reach}"

    @property
    def setter_name(self) -> str:
        """The name of the person who set it, or changed it last."""
        return self.changed_by.removeprefix("user:")

    @property
    def allower_name(self) -> str:
        """The name of the person who allowed more for a day."""
        return (self.allowed_by or "").removeprefix("user:")


class BudgetMark(models.Model):
    """A level that a budget reached, in percent, in the period or session `about`: people are notified once."""

    id = models.BigAutoField(primary_key=True)
    budget = models.ForeignKey(Budget, models.CASCADE, related_name="marks")
    about = models.TextField()
    level = models.IntegerField()
    at = IsoTextField()

    class Meta:
        db_table = "budget_marks"
        constraints = [models.UniqueConstraint(fields=["budget", "about", "level"], name="budget_marks_once")]

    def __str__(self) -> str:
        return f"{self.level} % of budget {self.budget_id}"


class SessionOwner(models.Model):
    """The person who ordered a session on a page; the sessions of a key are those of the person who made it."""

    session = models.OneToOneField(
        "Session",
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="session_id",
        related_name="owner",
    )
    person = models.TextField()

    class Meta:
        db_table = "session_owners"

    def __str__(self) -> str:
        return f"{self.person} of {self.pk}"
