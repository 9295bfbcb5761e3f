"""What a person may do to a session that a runner runs: queue prompts, stop a turn, change settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from coordinator.models import DrivenCommand, DrivenSession, Run, Session
from coordinator.models.sessions import RunParameters
from coordinator.policy.limits import budgets
from coordinator.runs.statuses import ACTIVE
from coordinator.runs.waits import RunQueueState
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.driven_agent_updates import is_valid_usage_amount
from coordinator.sessions.statuses import LIVE
from coordinator.sessions.title_words import preview_markdown
from dashboard.sessions.notes import note_delivery_text_and_doubt

MOST_QUEUED = 50
LONGEST_PREVIEW = 200  # characters of a prompt on one line
MOST_CHOICES = 100
MOST_COMMANDS = 200
DONE = "completed"


@dataclass(frozen=True, slots=True)
class QueuedPrompt:
    """A prompt that waits for its turn."""

    run: Run
    text: str
    images: int  # number of images that are sent with it
    why: str  # why it waits, or ""

    @property
    def text_preview(self) -> str:
        """The beginning of the prompt on one line, without Markdown."""
        return preview_markdown(self.text, LONGEST_PREVIEW)


@dataclass(frozen=True, slots=True)
class AgentSetting:
    """A setting of the agent that a person can change."""

    kind: str  # the command that changes it
    key: str
    name: str
    current: str
    choices: list[tuple[str, str, str]]  # value, name and description

    @property
    def current_choice_name(self) -> str:
        """The agent's name for the current value."""
        return next((name for value, name, _ in self.choices if value == self.current), self.current)


def build_steering_context(session: Session) -> dict[str, Any]:
    """Return the context of `sessions/_steer.html`.

    A note reaches an agent that is working. A prompt starts the next turn of a session that a runner runs. If
    both are possible, Enter sends the note.
    """
    driven = DrivenSession.objects.filter(pk=session.pk).first()
    runs = Run.objects.filter(session=session)
    working = runs.filter(status__in=ACTIVE).first()
    takes_prompts = runs.exists()
    takes_notes = session.status in LIVE and (working is not None or not takes_prompts)
    note_way, note_is_doubtful = note_delivery_text_and_doubt(session, driven=driven is not None)
    return {
        "driven": driven,
        "is_run_here": takes_prompts,
        "takes_prompts": takes_prompts,
        "takes_notes": takes_notes,
        "note_comes_first": takes_notes and not (takes_prompts and note_is_doubtful),
        "note_way": note_way,
        "note_is_doubtful": note_is_doubtful,
        "working": working,
        "queued": list_queued_prompts(session, working),
        "settings_offered": list_agent_settings(driven) if driven else [],
        "open_commands": list_unfinished_session_commands(session),
        "plan": build_agent_plan_or_none(driven),
        "slash_commands": list_slash_commands(driven),
        "takes_images": accepts_prompt_images(driven),
        "can_fork": has_session_capability(driven, "fork"),
        "context_share": context_used_percent(driven),
        "told_cost": format_reported_cost(driven),
    }


def list_queued_prompts(session: Session, working: Run | None) -> list[QueuedPrompt]:
    waiting = Run.objects.filter(session=session, status=Run.Status.PENDING).select_related(
        "hold", "ordered_with"
    )
    rows = list(waiting.order_by("created_at", "run_id")[:MOST_QUEUED])
    now = timezone.now()
    queue = (
        RunQueueState.load_queue_state(now, budgets.load_spent_run_budgets(now))
        if rows and working is None
        else None
    )
    return [
        QueuedPrompt(
            run,
            mask_secrets_in_value(run.prompt),
            count_prompt_images(getattr(run, "ordered_with", None)),
            queue.explain_waiting_run(run) if queue and place == 0 else "",
        )
        for place, run in enumerate(rows)
    ]


def count_prompt_images(ordered_with: RunParameters | None) -> int:
    parameters = ordered_with.parameters if ordered_with is not None else None
    images = parameters.get("images") if isinstance(parameters, dict) else None
    return len(images) if isinstance(images, list) else 0


def list_agent_settings(driven: DrivenSession) -> list[AgentSetting]:
    """Return the settings of an agent: modes and models of the protocol, and options of the session."""
    settings_rows = []
    modes = list_setting_choices(driven.mode_choices, "id")
    models = list_setting_choices(driven.model_choices, "modelId")
    if modes:
        settings_rows.append(AgentSetting("set_mode", "mode", "Mode", driven.mode or "", modes))
    if models:
        settings_rows.append(AgentSetting("set_model", "model", "Model", driven.model or "", models))
    known_keys = {setting.key for setting in settings_rows}
    for option in driven.config_options or []:
        choices = list_setting_choices(option.get("options"), "value")
        key = option.get("id")
        if isinstance(key, str) and key not in known_keys and choices:
            name, current = option.get("name"), option.get("currentValue")
            settings_rows.append(
                AgentSetting("set_config", key, str(name or key), str(current or ""), choices)
            )
    return settings_rows


def list_setting_choices(listed: Any, key: str) -> list[tuple[str, str, str]]:
    rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
    return [
        (
            str(choice_row[key]),
            str(choice_row.get("name") or choice_row[key]),
            str(choice_row.get("description") or ""),
        )
        for choice_row in rows[:MOST_CHOICES]
        if isinstance(choice_row.get(key), str)
    ]


def list_unfinished_session_commands(session: Session) -> list[DrivenCommand]:
    """Return the commands that the runner has not finished, and the latest one if it failed."""
    rows = DrivenCommand.objects.filter(session=session).order_by("-ordered_at")[:5]
    newest = list(rows)
    return [
        command for command in newest if command.done_at is None or (command.error and command is newest[0])
    ]


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """The agent's plan: its entries as (text, status)."""

    entries: list[tuple[str, str]]

    @property
    def done_count(self) -> int:
        """The number of finished entries."""
        return sum(status == DONE for _, status in self.entries)

    @property
    def current_entry(self) -> str:
        """The text of the entry in progress, or "" if there is none."""
        return next((entry_text for entry_text, status in self.entries if status == "in_progress"), "")


def build_agent_plan_or_none(driven: DrivenSession | None) -> AgentPlan | None:
    entries = [
        (str(plan_entry.get("content") or ""), str(plan_entry.get("status") or "pending"))
        for plan_entry in (driven.plan if driven else None) or []
        if isinstance(plan_entry, Mapping)
    ]
    return AgentPlan(entries) if entries else None


def list_slash_commands(driven: DrivenSession | None) -> list[tuple[str, str]]:
    rows = (driven.commands if driven else None) or []
    return [
        (str(row["name"]), str(row.get("description") or "")[:300])
        for row in rows[:MOST_COMMANDS]
        if isinstance(row, Mapping) and isinstance(row.get("name"), str)
    ]


def driven_capabilities(driven: DrivenSession | None) -> Mapping[str, Any]:
    capabilities = driven.capabilities if driven else None
    return capabilities if isinstance(capabilities, Mapping) else {}


def accepts_prompt_images(driven: DrivenSession | None) -> bool:
    prompts = driven_capabilities(driven).get("promptCapabilities")
    return isinstance(prompts, Mapping) and prompts.get("image") is True


def has_session_capability(driven: DrivenSession | None, capability: str) -> bool:
    sessions = driven_capabilities(driven).get("sessionCapabilities")
    return isinstance(sessions, Mapping) and sessions.get(capability) is not None


def context_used_percent(driven: DrivenSession | None) -> int | None:
    """Return how much of the model's context is used, in percent; None if it is unknown or rounds to 0."""
    usage = (driven.usage if driven else None) or {}
    used, size = usage.get("used"), usage.get("size")
    if not is_valid_usage_amount(used) or not is_valid_usage_amount(size) or size < 1:
        return None
    return min(100, round(100 * used / size)) or None


def format_reported_cost(driven: DrivenSession | None) -> str:
    """Return the cost of the session that its agent reported, with the currency; "" if there is none."""
    usage = (driven.usage if driven else None) or {}
    cost = usage.get("cost")
    amount = cost.get("amount") if isinstance(cost, Mapping) else None
    if not isinstance(cost, Mapping) or not is_valid_usage_amount(amount) or not amount:
        return ""
    unit = str(cost.get("currency") or "")[:8]
    cost_text = f"{amount:,.{2 if amount >= 0.1 else 4}f}"
    return f"${cost_text}" if unit in {"", "USD"} else f"{cost_text} {unit}"
