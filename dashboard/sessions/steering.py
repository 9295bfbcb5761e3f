"""What a person may do to a session that a runner runs: its next prompts, its turn, what its agent lets one set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from coordinator.models import DrivenCommand, DrivenSession, Run, Session
from coordinator.models.sessions import RunParameters
from coordinator.policy import budgets
from coordinator.runs.statuses import ACTIVE
from coordinator.runs.waits import Queue
from coordinator.secrets.masking import without_secrets
from coordinator.sessions.driving import is_amount

MOST_QUEUED = 50
MOST_CHOICES = 100
MOST_COMMANDS = 200
DONE = "completed"


@dataclass(frozen=True, slots=True)
class QueuedPrompt:
    """A prompt that waits for its turn, with how many images go with it, and why it waits."""

    run: Run
    text: str
    images: int
    why: str


@dataclass(frozen=True, slots=True)
class Setting:
    """Something that can be set: the `kind` of command for it, and the choices as (value, name, what it means)."""

    kind: str
    key: str
    name: str
    current: str
    choices: list[tuple[str, str, str]]

    @property
    def current_name(self) -> str:
        """What is set now, in the agent's words."""
        return next((name for value, name, _ in self.choices if value == self.current), self.current)


def steering_context(session: Session) -> dict[str, Any]:
    """Return what `sessions/_steer.html` draws."""
    driven = DrivenSession.objects.filter(pk=session.pk).first()
    runs = Run.objects.filter(session=session)
    working = runs.filter(status__in=ACTIVE).first()
    return {
        "driven": driven,
        "is_run_here": runs.exists(),
        "working": working,
        "queued": _queued(session, working),
        "settings_offered": _settings(driven) if driven else [],
        "open_commands": _open_commands(session),
        "plan": _plan(driven),
        "slash_commands": _commands(driven),
        "takes_images": _takes_images(driven),
        "can_fork": _can(driven, "fork"),
        "context_share": _context_share(driven),
        "told_cost": _told_cost(driven),
    }


def _queued(session: Session, working: Run | None) -> list[QueuedPrompt]:
    waiting = Run.objects.filter(session=session, status=Run.Status.PENDING).select_related(
        "hold", "ordered_with"
    )
    rows = list(waiting.order_by("created_at", "run_id")[:MOST_QUEUED])
    now = timezone.now()
    queue = Queue.at(now, budgets.spent_for_runs(now)) if rows and working is None else None
    return [
        QueuedPrompt(
            run,
            without_secrets(run.prompt),
            _images_of(getattr(run, "ordered_with", None)),
            queue.why(run) if queue and place == 0 else "",
        )
        for place, run in enumerate(rows)
    ]


def _images_of(ordered_with: RunParameters | None) -> int:
    given = ordered_with.parameters if ordered_with is not None else None
    images = given.get("images") if isinstance(given, dict) else None
    return len(images) if isinstance(images, list) else 0


def _settings(driven: DrivenSession) -> list[Setting]:
    """Return what can be set: modes and models as the protocol has them, else as options of the session."""
    found = []
    modes = _choices(driven.mode_choices, "id")
    models = _choices(driven.model_choices, "modelId")
    if modes:
        found.append(Setting("set_mode", "mode", "Mode", driven.mode or "", modes))
    if models:
        found.append(Setting("set_model", "model", "Model", driven.model or "", models))
    known = {one.key for one in found}
    for option in driven.config_options or []:
        choices = _choices(option.get("options"), "value")
        key = option.get("id")
        if isinstance(key, str) and key not in known and choices:
            name, current = option.get("name"), option.get("currentValue")
            found.append(Setting("set_config", key, str(name or key), str(current or ""), choices))
    return found


def _choices(listed: Any, key: str) -> list[tuple[str, str, str]]:
    rows = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    return [
        (str(one[key]), str(one.get("name") or one[key]), str(one.get("description") or ""))
        for one in rows[:MOST_CHOICES]
        if isinstance(one.get(key), str)
    ]


def _open_commands(session: Session) -> list[DrivenCommand]:
    """Return what the runner was told and has not done, and what it lately could not do."""
    rows = DrivenCommand.objects.filter(session=session).order_by("-ordered_at")[:5]
    newest = list(rows)
    return [one for one in newest if one.done_at is None or (one.error and one is newest[0])]


@dataclass(frozen=True, slots=True)
class Plan:
    """The agent's plan: its entries as (words, status), and how many are done."""

    entries: list[tuple[str, str]]

    @property
    def done(self) -> int:
        """How many entries are done."""
        return sum(status == DONE for _, status in self.entries)

    @property
    def now(self) -> str:
        """What is being done."""
        return next((words for words, status in self.entries if status == "in_progress"), "")


def _plan(driven: DrivenSession | None) -> Plan | None:
    entries = [
        (str(one.get("content") or ""), str(one.get("status") or "pending"))
        for one in (driven.plan if driven else None) or []
        if isinstance(one, Mapping)
    ]
    return Plan(entries) if entries else None


def _commands(driven: DrivenSession | None) -> list[tuple[str, str]]:
    rows = (driven.commands if driven else None) or []
    return [
        (str(one["name"]), str(one.get("description") or "")[:300])
        for one in rows[:MOST_COMMANDS]
        if isinstance(one, Mapping) and isinstance(one.get("name"), str)
    ]


def _capabilities(driven: DrivenSession | None) -> Mapping[str, Any]:
    told = driven.capabilities if driven else None
    return told if isinstance(told, Mapping) else {}


def _takes_images(driven: DrivenSession | None) -> bool:
    prompts = _capabilities(driven).get("promptCapabilities")
    return isinstance(prompts, Mapping) and prompts.get("image") is True


def _can(driven: DrivenSession | None, what: str) -> bool:
    sessions = _capabilities(driven).get("sessionCapabilities")
    return isinstance(sessions, Mapping) and sessions.get(what) is not None


def _context_share(driven: DrivenSession | None) -> int | None:
    """Return how much of the model's context is used, in percent; None where that is hardly any."""
    usage = (driven.usage if driven else None) or {}
    used, size = usage.get("used"), usage.get("size")
    if not is_amount(used) or not is_amount(size) or size < 1:
        return None
    return min(100, round(100 * used / size)) or None


def _told_cost(driven: DrivenSession | None) -> str:
    """Return what the session has cost as its agent says; empty where it says nothing."""
    usage = (driven.usage if driven else None) or {}
    cost = usage.get("cost")
    amount = cost.get("amount") if isinstance(cost, Mapping) else None
    if not isinstance(cost, Mapping) or not is_amount(amount) or not amount:
        return ""
    unit = str(cost.get("currency") or "")[:8]
    words = f"{amount:,.{2 if amount >= 0.1 else 4}f}"
    return f"${words}" if unit in {"", "USD"} else f"{words} {unit}"
