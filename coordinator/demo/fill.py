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
from django.db.models import Q, QuerySet

from coordinator.actions import approvals
from coordinator.actions.agents.agents import DEFAULT_AGENT
from coordinator.actions.audit import audit
from coordinator.actions.sessions import tool_calls
from coordinator.actions.usage import usage_backfill
from coordinator.demo import chats, policy
from coordinator.demo.cast import PEOPLE, PLUGINS, TEAMS, TRADES, demo_agent_id, demo_blueprint_name
from coordinator.demo.long_session import plan_long_session
from coordinator.demo.questions import PROGRAM, request_answers_to_demo_questions
from coordinator.demo.tasks import MessageStep, PointStep, ToolCallStep
from coordinator.demo.week import PlannedRequest, SessionStory, TimedStep, WeekPlanner
from coordinator.errors import Conflict
from coordinator.identity.actors import key_actor_by_name, system_actor
from coordinator.identity.roles import APPROVER
from coordinator.lib import instants
from coordinator.lib.identifiers import derive_runner_id
from coordinator.models import (
    Agent,
    AgentPlugin,
    ApiKey,
    AuditLeaf,
    AuditLog,
    Blueprint,
    ChatMessage,
    Event,
    EventContext,
    Grant,
    McpServer,
    PermissionRequest,
    PluginConfig,
    PluginSetting,
    Run,
    Runner,
    Session,
    SessionOwner,
    ToolRule,
)
from coordinator.policy.requests.approvals import PermissionSubject, Validity

BATCH = 500
ALERTED_TRADE = "oncall"  # alerts start its sessions, not people
FILLED = "DEMO_FILLED"
RUN_STATUS = {"finished": "completed", "error": "failed", "stopped": "stopped", "running": "running"}
PROFILE = "coding"
# What is at work right now runs elsewhere: the fleet of --live registers as PROFILE, and a runner that
# registers anew has lost what it was doing.
PROFILE_AT_WORK = "coding-on-demand"
MODEL = "claude-sonnet-4-5"


@dataclass(frozen=True, slots=True)
class DemoRowCounts:
    agents: int
    sessions: int
    events: int
    requests: int
    messages: int


def has_existing_application_data() -> bool:
    """Say whether the database holds data that the demo's would mix with.

    One account is none: whoever looks at the demo makes it with the set-up link, before or after. A second one, or
    anything that either has set up, is somebody's real work.
    """
    if User.objects.count() > 1 or Agent.objects.exclude(pk=DEFAULT_AGENT).exists():
        return True
    return any(
        model.objects.exists()
        for model in (Session, PermissionRequest, ChatMessage, Grant, ApiKey, ToolRule, McpServer)
    )


def explain_why_demo_may_not_decide() -> str | None:
    """Return why made-up people may not decide here; None where the demo filled the database and works in it alone."""
    if not has_demo_filled_empty_database():
        return "the demo did not fill this database while it was empty"
    foreign_key = ApiKey.objects.exclude(created_by=str(system_actor("demo"))).order_by("id").first()
    if foreign_key is not None:
        return f"the API key {foreign_key.name!r} is not the demo's own"
    foreign_session = find_foreign_sessions().order_by("session_id").first()
    if foreign_session is not None:
        return f"the session {foreign_session.session_id!r} is not the demo's own"
    return None


def has_demo_filled_empty_database() -> bool:
    """Say whether Signalbox wrote that the demo filled this database, and nobody that it was in use then.

    An entry that another program wrote, or that came with an import, proves nothing and spoils the proof.
    """
    filled = dict(
        AuditLog.objects.filter(event_type=FILLED, actor_id=str(system_actor("demo"))).values_list(
            "id", "metadata"
        )
    )
    own_leaf_count = AuditLeaf.objects.filter(pk__in=list(filled), by_signalbox=True).count()
    return 0 < len(filled) == own_leaf_count and all(
        isinstance(metadata, dict) and metadata.get("in_use") is False for metadata in filled.values()
    )


def find_foreign_sessions() -> QuerySet[Session]:
    """Return the sessions that are in no folder of the demo's teams; one without a folder is known by its agent."""
    names = [demo_blueprint_name(team, trade) for team in TEAMS for trade in TRADES]
    return Session.objects.exclude(
        Q(project_dir__in=[team.project_dir for team in TEAMS])
        & (Q(hostname__isnull=True) | Q(hostname__in=[team.hostname for team in TEAMS]))
    ).exclude(project_dir__isnull=True, agent_name__in=names)


def fill_demo_database(*, seed: int, days: int, now: datetime, anyway: bool = False) -> DemoRowCounts:
    """Write `days` days up to `now`. Raises Conflict where the database is in use, unless told `anyway`."""
    in_use = has_existing_application_data()
    if in_use and not anyway:
        raise Conflict(
            "This database is in use: it has sessions, requests, chats, grants, agents, servers, rules, API keys or "
            "several accounts. The demo's data would mix with them. Use an empty data folder (SIGNALBOX_DATA_DIR), "
            "or add --anyway."
        )
    dice = Random(seed)
    stories = WeekPlanner(seed=seed, now=now, days=days).plan_week_stories()
    stories.append(plan_long_session(seed=seed, now=now))
    with transaction.atomic():
        agents = write_demo_agents_and_blueprints(dice, now)
        write_demo_runners(now)
        policy.write_demo_policy(dice, now)
        write_demo_sessions_and_runs(stories)
        events = write_story_events(stories)
        requests = sum(request_and_decide_story_permissions(story) for story in stories)
        at_work = [
            (story.session_id, story.story_agent_id)
            for story in stories
            if story.program == PROGRAM and story.status == "running"
        ]
        requests += request_answers_to_demo_questions(at_work, now)
        messages = chats.write_demo_chats(dice, now)
        audit.record_audit_entry(
            FILLED,
            actor=system_actor("demo"),
            target=None,
            result="success",
            metadata={"in_use": in_use},
            now=now,
        )
    return DemoRowCounts(agents, len(stories), events, requests, messages)


def write_demo_agents_and_blueprints(dice: Random, now: datetime) -> int:
    """Write agents, their blueprints and plugins; return how many agents there are now."""
    registered_agents = [
        now - timedelta(seconds=dice.choice([5, 20, 45, 80, 300, 7200]))
        for _agent in range(len(TEAMS) * len(TRADES))
    ]
    pairs = [(team, trade) for team in TEAMS for trade in TRADES]
    Agent.objects.bulk_create(
        [
            Agent(
                id=demo_agent_id(team, trade),
                name=f"{team.name.capitalize()} {trade.title.lower()}",
                description=trade.description,
                default_engine_id=dice.choice(["mind.deepseek", "mind.cerebras"]),
                metadata={"team": team.name, "repository": team.repository},
                required_capabilities=list(trade.capabilities),
                enabled=dice.random() > 0.06,
                last_seen=last_seen,
            )
            for (team, trade), last_seen in zip(pairs, registered_agents, strict=True)
        ]
    )
    Blueprint.objects.bulk_create(
        [
            Blueprint(
                name=demo_blueprint_name(team, trade),
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
            AgentPlugin(agent_id=demo_agent_id(team, trade), plugin_id=plugin_id, pos_x=40 * place, pos_y=0)
            for team, trade in pairs
            for place, plugin_id in enumerate(dice.sample(sorted(PLUGINS), 2))
        ]
    )
    return Agent.objects.count()


def write_demo_runners(now: datetime) -> None:
    """Write two runners a team, alive at `now`."""
    Runner.objects.bulk_create(
        [
            Runner(
                runner_id=derive_runner_id(team.hostname, team.project_dir, profile),
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


def write_demo_sessions_and_runs(stories: list[SessionStory]) -> None:
    ordered = sorted(stories, key=story_depth)
    Session.objects.bulk_create([build_story_session(story) for story in ordered], BATCH)
    Run.objects.bulk_create([build_story_run(story) for story in ordered if not story.program], BATCH)
    SessionOwner.objects.bulk_create(
        [
            SessionOwner(session_id=story.session_id, person=choose_story_owner(story))
            for story in ordered
            if story.parent is None and story.trade.name != ALERTED_TRADE
        ],
        BATCH,
    )


def choose_story_owner(story: SessionStory) -> str:
    """Return who ordered a session: each of a team's agents has a person. Alerts start the others."""
    return PEOPLE[(TEAMS.index(story.team) + TRADES.index(story.trade)) % len(PEOPLE)]


def story_depth(story: SessionStory) -> int:
    return 0 if story.parent is None else 1 + story_depth(story.parent)


def build_story_session(story: SessionStory) -> Session:
    return Session(
        session_id=story.session_id,
        status=story.status,
        created_at=story.begins,
        project_dir=story.team.project_dir,
        agent_name=story.session_agent_name,
        parent_session_id=story.parent.session_id if story.parent else None,
        executor_session_id=f"demo-{story.session_id[4:]}",
        executor_profile=choose_executor_profile(story),
        hostname=story.team.hostname,
    )


def choose_executor_profile(story: SessionStory) -> str:
    """Return the program in whose terminal the session runs, else the profile of the runner that drives it."""
    if story.program:
        return story.program
    return PROFILE_AT_WORK if story.status == "running" else PROFILE


def build_story_run(story: SessionStory) -> Run:
    return Run(
        run_id=story.run_id,
        session_id=story.session_id,
        type="start_session",
        agent_name=story.session_agent_name,
        prompt=story.prompt,
        project_dir=story.team.project_dir,
        parent_session_id=story.parent.session_id if story.parent else None,
        execution_mode="sync" if story.parent else "async_poll",
        demands={"tags": [story.team.name]},
        status=RUN_STATUS[story.status],
        runner_id=derive_runner_id(
            story.team.hostname, story.team.project_dir, choose_executor_profile(story)
        ),
        error=story.error,
        created_at=story.begins,
        claimed_at=story.begins + timedelta(milliseconds=180),
        started_at=story.begins + timedelta(milliseconds=420),
        completed_at=story.ends,
    )


def write_story_events(stories: list[SessionStory]) -> int:
    """Write every story's events in the order of their times, with their context; return how many."""
    pairs = sorted(
        (pair for story in stories for pair in generate_story_events(story)),
        key=lambda pair: pair[1].instant_us,
    )
    for start in range(0, len(pairs), BATCH):
        part = pairs[start : start + BATCH]
        events = Event.objects.bulk_create([event for event, _context in part])
        contexts = [context for _event, context in part]
        for event, context in zip(events, contexts, strict=True):
            context.event_id = event.pk
        EventContext.objects.bulk_create(contexts)
        usage_backfill.add_usage_rows_of_events(events[0].pk - 1, events[-1].pk)
        usage_backfill.add_events_to_usage_days(events[0].pk - 1, events[-1].pk)
    return len(pairs)


def generate_story_events(story: SessionStory) -> Iterator[tuple[Event, EventContext]]:
    """Yield a story's events with their context, whose event id is still to be set."""
    yield build_story_event_with_context(story, story.begins, "session_start")
    for moment in story.moments:
        if isinstance(moment.step, MessageStep):
            yield build_message_event_and_context(story, moment, moment.step)
        elif isinstance(moment.step, PointStep):
            point = build_story_event_with_context(
                story, moment.at, moment.step.event_type, tool_input=moment.step.about
            )
            point[1].subagent = moment.subagent
            yield point
        else:
            yield from generate_tool_call_events(story, moment, moment.step)
    if story.ends is not None:
        ending = {"finished": "completed", "error": "failed", "stopped": "stopped"}[story.status]
        code = 1 if story.status == "error" else 0
        yield build_story_event_with_context(
            story, story.ends, "session_stop", exit_code=code, reason=ending, error=story.error
        )


def build_message_event_and_context(
    story: SessionStory, moment: TimedStep, step: MessageStep
) -> tuple[Event, EventContext]:
    """Return the event of something said; an assistant's words carry their tokens."""
    content = [{"type": "text", "text": step.text}]
    pair = build_story_event_with_context(story, moment.at, "message", role=step.role, content=content)
    if step.role == "assistant":
        pair[1].model = MODEL
        pair[1].output_tokens = len(step.text) // 4 + 40
        pair[1].input_tokens = 900 + 37 * len(step.text)
    return pair


def generate_tool_call_events(
    story: SessionStory, moment: TimedStep, step: ToolCallStep
) -> Iterator[tuple[Event, EventContext]]:
    """Yield the events of a tool call: its beginning and, where it came, its result."""
    about: dict[str, Any] = {"tool_name": step.tool, "tool_input": step.input}
    before = build_story_event_with_context(story, moment.at, "pre_tool", **about)
    before[1].tool_use_id, before[1].subagent = moment.tool_use_id, moment.subagent
    yield before
    if moment.ends_at is not None:
        after = build_story_event_with_context(
            story, moment.ends_at, "post_tool", tool_output=step.output, error=step.error, **about
        )
        after[1].tool_use_id, after[1].subagent = moment.tool_use_id, moment.subagent
        after[1].duration_ms = (moment.ends_at - moment.at) // timedelta(milliseconds=1)
        yield after


def build_story_event_with_context(
    story: SessionStory, at: datetime, event_type: str, **values: Any
) -> tuple[Event, EventContext]:
    """Return an event of the story at `at`, and its context."""
    row = Event(
        session_id=story.session_id,
        event_type=event_type,
        timestamp=instants.format_canonical_instant(at),
        **values,
    )
    context = EventContext(
        session_id=story.session_id,
        instant_us=instants.instant_to_microseconds(at),
        received_at=at,
        run_id=None if story.program else story.run_id,
        source=story.program or "demo",
    )
    return row, context


def request_and_decide_story_permissions(story: SessionStory) -> int:
    """Ask and answer the story's questions through the real actions, at the story's times."""
    for question in story.questions:
        request_and_decide_planned_permission(story, question)
    return len(story.questions)


def request_and_decide_planned_permission(story: SessionStory, question: PlannedRequest) -> None:
    """Ask one question and let it end as the story says."""
    asker = key_actor_by_name("demo-fleet")
    request = approvals.request_permission(
        build_planned_request(story, question), actor=asker, now=question.requested_at
    )
    if not request.created or question.verdict == "pending":
        return
    request_id, ended_at = request.request.request_id, question.decided_at
    if question.verdict in {"approved", "denied"}:
        approvals.decide_request(
            request_id,
            person=build_unsaved_decider(question.decided_by or ""),
            verdict="approved" if question.verdict == "approved" else "denied",
            reason=question.reason,
            validity=Validity.ONCE,
            now=ended_at,
        )
    elif question.verdict == "withdrawn":
        approvals.withdraw_request(request_id, actor=asker, reason=question.reason, now=ended_at)
    else:
        approvals.expire_due_requests(ended_at)


def build_planned_request(story: SessionStory, question: PlannedRequest) -> approvals.NewPermissionRequest:
    call = question.ask.call
    subject = PermissionSubject(
        question.ask.plugin, question.ask.permission, question.ask.target, call.tool, call.input
    )
    if story.program:  # as its hooks ask
        subject = PermissionSubject(story.program, tool_calls.PERMISSION, None, call.tool, call.input)
    return approvals.NewPermissionRequest(
        subject=subject,
        justification=question.ask.why,
        session_id=story.session_id,
        agent_id=story.story_agent_id,
        deadline=question.decided_at if question.verdict == "expired" else None,
    )


def build_unsaved_decider(name: str) -> User:
    """Return somebody who decided in the past. Not an account: nobody can sign in as one of them."""
    somebody = User(username=name)
    somebody._signalbox_role = APPROVER  # type: ignore[attr-defined]
    return somebody
