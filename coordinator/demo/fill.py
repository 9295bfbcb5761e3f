"""Writes the demo's week into an empty database: all of it or, where anything fails, none of it.

Sessions, events and chats are written as history, with their own times. Permission requests go through the
real actions, with the clock of the story, so that their context and audit rows are the real thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from coordinator import instants
from coordinator.actions import approvals
from coordinator.actors import key
from coordinator.approvals import Subject, Validity
from coordinator.demo import chats, policy
from coordinator.demo.cast import PLUGINS, TEAMS, TRADES, agent_id, blueprint_name
from coordinator.demo.tasks import Call, Say
from coordinator.demo.week import Moment, Question, Story, Week
from coordinator.errors import Conflict
from coordinator.identifiers import runner_id_of
from coordinator.models import (
    Agent,
    AgentPlugin,
    Blueprint,
    ChatMessage,
    Event,
    EventContext,
    Grant,
    PermissionRequest,
    PluginConfig,
    PluginSetting,
    Run,
    Runner,
    Session,
)
from coordinator.roles import APPROVER

BATCH = 500
RUN_STATUS = {"finished": "completed", "error": "failed", "stopped": "stopped", "running": "running"}
PROFILE = "coding"
# What is at work right now runs elsewhere: the fleet of --live registers as PROFILE, and a runner that
# registers anew has lost what it was doing.
PROFILE_AT_WORK = "coding-on-demand"
MODEL = "claude-sonnet-4-5"


@dataclass(frozen=True, slots=True)
class Filled:
    """How much was written."""

    agents: int
    sessions: int
    events: int
    requests: int
    messages: int


def is_in_use() -> bool:
    """Say whether the database holds anything that a demo would mix with."""
    return any(model.objects.exists() for model in (Session, PermissionRequest, ChatMessage, Grant))


def fill(*, seed: int, days: int, now: datetime, anyway: bool = False) -> Filled:
    """Write `days` days up to `now`. Raises Conflict where the database is in use, unless told `anyway`."""
    if is_in_use() and not anyway:
        raise Conflict(
            "This database is in use: it has sessions, requests, chats or grants. The demo would mix with them; "
            "use an empty data folder (SIGNALBOX_DATA_DIR), or add --anyway if that is what you want."
        )
    dice = Random(seed)
    stories = Week(seed=seed, now=now, days=days).plan()
    with transaction.atomic():
        agents = write_agents(dice, now)
        write_fleet(now)
        policy.write(dice, now)
        write_sessions(stories)
        events = write_events(stories)
        requests = sum(write_questions(story) for story in stories)
        messages = chats.write(dice, now)
    return Filled(agents, len(stories), events, requests, messages)


def write_agents(dice: Random, now: datetime) -> int:
    """Write agents, their blueprints and plugins; return how many agents there are now."""
    seen = [
        now - timedelta(seconds=dice.choice([5, 20, 45, 80, 300, 7200]))
        for _agent in range(len(TEAMS) * len(TRADES))
    ]
    pairs = [(team, trade) for team in TEAMS for trade in TRADES]
    Agent.objects.bulk_create(
        [
            Agent(
                id=agent_id(team, trade),
                name=f"{team.name.capitalize()} {trade.title.lower()}",
                description=trade.description,
                default_engine_id=dice.choice(["mind.deepseek", "mind.cerebras"]),
                metadata={"team": team.name, "repository": team.repository},
                required_capabilities=list(trade.capabilities),
                enabled=dice.random() > 0.06,
                last_seen=last_seen,
            )
            for (team, trade), last_seen in zip(pairs, seen, strict=True)
        ]
    )
    Blueprint.objects.bulk_create(
        [
            Blueprint(
                name=blueprint_name(team, trade),
                description=trade.description,
                system_prompt=f"You work on {team.repository}. {trade.description}",
                tags=[team.name, trade.name],
                demands={"tags": [team.name]},
                created_at=now - timedelta(days=30),
                modified_at=now - timedelta(days=dice.randint(1, 29)),
            )
            for team, trade in pairs
        ]
    )
    for plugin_id, (permissions, configs) in PLUGINS.items():
        PluginSetting.objects.create(plugin_id=plugin_id, allowed_permissions=permissions)
        PluginConfig.objects.bulk_create(
            [
                PluginConfig(plugin_id=plugin_id, config_key=name, config_value=value)
                for name, value in configs.items()
            ]
        )
    AgentPlugin.objects.bulk_create(
        [
            AgentPlugin(agent_id=agent_id(team, trade), plugin_id=plugin_id, pos_x=40 * place, pos_y=0)
            for team, trade in pairs
            for place, plugin_id in enumerate(dice.sample(sorted(PLUGINS), 2))
        ]
    )
    return Agent.objects.count()


def write_fleet(now: datetime) -> None:
    """Write two runners a team, alive at `now`."""
    Runner.objects.bulk_create(
        [
            Runner(
                runner_id=runner_id_of(team.hostname, team.project_dir, profile),
                hostname=team.hostname,
                project_dir=team.project_dir,
                executor_profile=profile,
                executor={"type": "claude-code", "command": "executors/claude-code", "config": {}},
                tags=[team.name],
                registered_at=now - timedelta(days=2),
                last_heartbeat=now,
            )
            for team in TEAMS
            for profile in (PROFILE, PROFILE_AT_WORK)
        ]
    )


def write_sessions(stories: list[Story]) -> None:
    """Write sessions, parents before children, and one run each."""
    ordered = sorted(stories, key=depth)
    Session.objects.bulk_create([session_row(story) for story in ordered], BATCH)
    Run.objects.bulk_create([run_row(story) for story in ordered], BATCH)


def depth(story: Story) -> int:
    """Return how many parents a story has above it."""
    return 0 if story.parent is None else 1 + depth(story.parent)


def session_row(story: Story) -> Session:
    """Return the session's row."""
    return Session(
        session_id=story.session_id,
        status=story.status,
        created_at=story.begins,
        project_dir=story.team.project_dir,
        agent_name=story.agent_name,
        parent_session_id=story.parent.session_id if story.parent else None,
        executor_session_id=f"demo-{story.session_id[4:]}",
        executor_profile=profile_of(story),
        hostname=story.team.hostname,
    )


def profile_of(story: Story) -> str:
    """Return the profile of the runner that drives, or drove, the session."""
    return PROFILE_AT_WORK if story.status == "running" else PROFILE


def run_row(story: Story) -> Run:
    """Return the run that drove the session."""
    return Run(
        run_id=story.run_id,
        session_id=story.session_id,
        type="start_session",
        agent_name=story.agent_name,
        prompt=story.prompt,
        project_dir=story.team.project_dir,
        parent_session_id=story.parent.session_id if story.parent else None,
        execution_mode="sync" if story.parent else "async_poll",
        demands={"tags": [story.team.name]},
        status=RUN_STATUS[story.status],
        runner_id=runner_id_of(story.team.hostname, story.team.project_dir, profile_of(story)),
        error=story.error,
        created_at=story.begins,
        claimed_at=story.begins + timedelta(milliseconds=180),
        started_at=story.begins + timedelta(milliseconds=420),
        completed_at=story.ends,
    )


def write_events(stories: list[Story]) -> int:
    """Write every story's events in the order of their times, with their context; return how many."""
    pairs = sorted(
        (pair for story in stories for pair in events_of(story)), key=lambda pair: pair[1].instant_us
    )
    for start in range(0, len(pairs), BATCH):
        part = pairs[start : start + BATCH]
        events = Event.objects.bulk_create([event for event, _context in part])
        contexts = [context for _event, context in part]
        for event, context in zip(events, contexts, strict=True):
            context.event_id = event.pk
        EventContext.objects.bulk_create(contexts)
    return len(pairs)


def events_of(story: Story) -> Iterator[tuple[Event, EventContext]]:
    """Yield a story's events with their context, whose event id is still to be set."""
    yield event(story, story.begins, "session_start")
    for moment in story.moments:
        if isinstance(moment.step, Say):
            yield said(story, moment, moment.step)
        else:
            yield from called(story, moment, moment.step)
    if story.ends is not None:
        ending = {"finished": "completed", "error": "failed", "stopped": "stopped"}[story.status]
        code = 1 if story.status == "error" else 0
        yield event(story, story.ends, "session_stop", exit_code=code, reason=ending, error=story.error)


def said(story: Story, moment: Moment, step: Say) -> tuple[Event, EventContext]:
    """Return the event of something said; an assistant's words carry their tokens."""
    content = [{"type": "text", "text": step.text}]
    pair = event(story, moment.at, "message", role=step.role, content=content)
    if step.role == "assistant":
        pair[1].model = MODEL
        pair[1].output_tokens = len(step.text) // 4 + 40
        pair[1].input_tokens = 900 + 37 * len(step.text)
    return pair


def called(story: Story, moment: Moment, step: Call) -> Iterator[tuple[Event, EventContext]]:
    """Yield the events of a tool call: its beginning and, where it came, its result."""
    about: dict[str, Any] = {"tool_name": step.tool, "tool_input": step.input}
    before = event(story, moment.at, "pre_tool", **about)
    before[1].tool_use_id = moment.tool_use_id
    yield before
    if moment.ends_at is not None:
        after = event(story, moment.ends_at, "post_tool", tool_output=step.output, error=step.error, **about)
        after[1].tool_use_id = moment.tool_use_id
        after[1].duration_ms = (moment.ends_at - moment.at) // timedelta(milliseconds=1)
        yield after


def event(story: Story, at: datetime, event_type: str, **values: Any) -> tuple[Event, EventContext]:
    """Return an event of the story at `at`, and its context."""
    row = Event(
        session_id=story.session_id, event_type=event_type, timestamp=instants.canonical(at), **values
    )
    context = EventContext(
        session_id=story.session_id,
        instant_us=instants.to_us(at),
        received_at=at,
        run_id=story.run_id,
        source="demo",
    )
    return row, context


def write_questions(story: Story) -> int:
    """Ask and answer the story's questions through the real actions, at the story's times."""
    for question in story.questions:
        write_question(story, question)
    return len(story.questions)


def write_question(story: Story, question: Question) -> None:
    """Ask one question and let it end as the story says."""
    asker = key("demo-fleet")
    asked = approvals.request(ask_of(story, question), by=asker, now=question.asked_at)
    if not asked.created or question.verdict == "pending":
        return
    request_id, ended_at = asked.request.request_id, question.decided_at
    if question.verdict in {"approved", "denied"}:
        approvals.decide(
            request_id,
            by=decider(question.decided_by or ""),
            verdict="approved" if question.verdict == "approved" else "denied",
            reason=question.reason,
            validity=Validity.ONCE,
            now=ended_at,
        )
    elif question.verdict == "withdrawn":
        approvals.withdraw(request_id, by=asker, reason=question.reason, now=ended_at)
    else:
        approvals.lapse_due(ended_at)


def ask_of(story: Story, question: Question) -> approvals.Ask:
    """Return the question as the API would receive it."""
    call = question.ask.call
    return approvals.Ask(
        subject=Subject(
            plugin_id=question.ask.plugin,
            permission_type=question.ask.permission,
            target_resource=question.ask.target,
            tool_name=call.tool,
            tool_input=call.input,
        ),
        justification=question.ask.why,
        session_id=story.session_id,
        agent_id=story.agent_id,
        deadline=question.decided_at if question.verdict == "expired" else None,
    )


def decider(name: str) -> User:
    """Return somebody who decided in the past. Not an account: nobody can sign in as one of them."""
    somebody = User(username=name)
    somebody._signalbox_role = APPROVER  # type: ignore[attr-defined]
    return somebody
