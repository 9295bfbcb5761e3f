"""Creation of runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from coordinator.actions.audit import audit
from coordinator.actions.runs.run_state_machine import create_pending_run, lock_session
from coordinator.actions.sessions import writers
from coordinator.errors import BadRequest, Conflict, Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.lib.identifiers import new_session_id
from coordinator.models import Blueprint, DrivenSession, Run, Session, SessionOwner
from coordinator.models.budgets import BudgetReach
from coordinator.models.runners import AUTONOMOUS, PROCEDURAL
from coordinator.policy.limits import budgets
from coordinator.runs import demands, offers
from coordinator.runs.blueprints import find_procedural_runner_agent, unmasked_blueprint_as_json
from coordinator.runs.parameters import DRIVEN, require_valid_parameters
from coordinator.runs.statuses import RESUME


def queue_start_or_resume_run(
    *,
    kind: str,
    prompt: str,
    actor: Actor,
    now: datetime,
    session_id: str | None = None,
    agent_name: str | None = None,
    project_dir: str | None = None,
    parent_session_id: str | None = None,
    execution_mode: str = "sync",
    additional_demands: dict[str, Any] | None = None,
    parameters: dict[str, Any] | None = None,
) -> Run:
    """Queue a run that starts a new session (`kind` START) or resumes one (RESUME), and return it.

    `parameters` are what the newest clients give instead of a prompt, and a procedural agent takes; `prompt` is the
    one among them, or empty. Raises NotFound for an unknown parent or session, Conflict for a session id in use,
    BadRequest for a resume that names no session or one of a procedural agent, for parameters that the agent does not
    take and for a blueprint that cannot be resolved, Forbidden for parameters that only a person may choose. A resume
    of a session at work waits until that work has ended.
    """
    if kind == RESUME and not session_id:
        raise BadRequest("session_id is required for resume_session")
    order_requirements = require_valid_order_requirements(kind, session_id, agent_name, prompt, parameters)
    with transaction.atomic():
        if parent_session_id is not None and not Session.objects.filter(pk=parent_session_id).exists():
            raise NotFound("Parent session not found")
        if kind == RESUME:
            session = lock_session(str(session_id))
        else:
            session = insert_new_session(session_id, agent_name, project_dir, parent_session_id, now)
            writers.record_session_creator_key(session.session_id, actor)
            if actor.kind == "user":
                SessionOwner.objects.create(session=session, person=actor.name)
        chosen = (parameters or {}).get("agent")
        names = (agent_name, chosen if isinstance(chosen, str) else None)
        require_run_within_budget(session, names, actor, now, is_new=kind != RESUME)
        run = create_pending_run(
            session,
            kind=kind,
            prompt=prompt,
            agent_name=agent_name or session.agent_name,
            project_dir=project_dir or session.project_dir,
            parent_session_id=parent_session_id,
            execution_mode=execution_mode,
            additional_demands=demands.merge_run_demands_by_precedence(
                order_requirements.demands, additional_demands
            ),
            parameters=order_requirements.parameters,
            now=now,
        )
        # By what the run demands in the end, its blueprint's own demands included: they say which runners may take it.
        if not demands.demands_procedural_runner(run.demands):
            require_person_for_autonomy_parameters(parameters or {}, actor)
        audit.record_audit_entry(
            "RUN_CREATED",
            actor=actor,
            target=run.run_id,
            result="success",
            metadata={"type": kind, "session_id": session.session_id, "agent_name": run.agent_name},
            now=now,
        )
    return run


@dataclass(frozen=True, slots=True)
class OrderRequirements:
    """The agent's demands on a runner, and the parameters to be stored with the prompt."""

    demands: dict[str, Any] | None
    parameters: dict[str, Any] | None


def require_valid_order_requirements(
    kind: str, session_id: str | None, agent_name: str | None, prompt: str, parameters: dict[str, Any] | None
) -> OrderRequirements:
    """Hold the order to what its agent takes. Raises BadRequest, also for a blueprint that cannot be resolved."""
    if kind == RESUME:
        agent_name = agent_name or find_session_agent_name(str(session_id))
    blueprint = Blueprint.objects.filter(pk=agent_name).first() if agent_name else None
    brought = find_procedural_runner_agent(agent_name) if blueprint is None else None
    is_procedural = brought is not None or (blueprint is not None and blueprint.type == PROCEDURAL)
    if kind == RESUME and (is_procedural or is_session_of_procedural_agent(str(session_id))):
        raise BadRequest(
            {
                "error": "procedural_agent_no_resume",
                "message": "Procedural agents are stateless and cannot be resumed",
                "agent_name": agent_name,
            }
        )
    if blueprint is not None:
        require_resolvable_blueprint(blueprint)
    if parameters is None and not is_procedural:
        return OrderRequirements(None, None)  # as older clients order: a prompt, to any runner of agents
    default_parameters = {"prompt": prompt} if parameters is None else parameters
    schema = brought.parameters_schema if brought else blueprint.parameters_schema if blueprint else None
    if schema is None:
        schema = {"type": "object"} if is_procedural else driven_parameter_schema_or_none(default_parameters)
    require_valid_parameters(default_parameters, schema, agent_name)
    demanded = (
        brought.own_runner_demands()
        if brought
        else {"executor_type": PROCEDURAL if is_procedural else AUTONOMOUS}
    )
    parameters_to_store = (
        default_parameters if is_procedural or set(default_parameters) != {"prompt"} else None
    )
    return OrderRequirements(demanded, parameters_to_store)


def require_resolvable_blueprint(blueprint: Blueprint) -> None:
    """Raise BadRequest where a run would begin without its blueprint's instructions and MCP servers."""
    try:
        unmasked_blueprint_as_json(blueprint)
    except UnprocessableRequest as problem:
        raise BadRequest(
            f"The blueprint '{blueprint.name}' cannot be resolved: {problem.detail}. Correct it before a run uses it."
        ) from None


def require_person_for_autonomy_parameters(values: dict[str, Any], actor: Actor) -> None:
    """Raise Forbidden where a program chooses how far a driven agent may go by itself.

    BadRequest where anybody names the agent's own session: it may be another's.
    """
    if "agent_session_id" in values:
        raise BadRequest(
            "agent_session_id is set by the agent. To continue from a session, name it as fork_of."
        )
    chosen = [name for name in offers.FOR_PEOPLE if name in values]
    if chosen and actor.kind != "user":
        raise Forbidden(
            f"Only a person may choose {' and '.join(chosen)}: with it the agent may act without asking."
        )


def require_run_within_budget(
    session: Session, names: Iterable[str | None], actor: Actor, now: datetime, *, is_new: bool
) -> None:
    """Raise Conflict where a budget is used up that lets no run of this session's agent begin."""
    if not budgets.has_hold_at_limit_budget(now):
        return  # whose agent it is, and whose session, need not be looked up
    driven = DrivenSession.objects.filter(pk=session.pk).values_list("agent", flat=True).first()
    agents = {*names, session.agent_name, session.executor_profile, driven}
    agents |= {offers.PROGRAMS.get(name or "") for name in agents}
    subject = budgets.load_budget_subject_of_session(set(BudgetReach), agents, session.pk)
    if subject.person is None:
        person = actor.name if actor.kind == "user" else budgets.find_api_key_creator_username(actor.name)
        subject = replace(subject, person=person)
    holding_budget = budgets.find_budget_blocking_run(subject, None if is_new else session.pk, now)
    if holding_budget is not None:
        raise Conflict(
            f"The budget of {holding_budget.budget.title} is used up ({holding_budget.used_amount_label}). "
            "No run starts until a person raises it on the page Budgets, or allows more until the end of the day."
        )


def driven_parameter_schema_or_none(values: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of what a runner takes that drives agents, where any of that is given."""
    return DRIVEN if any(name in values for name in offers.PARAMETERS) else None


def find_session_agent_name(session_id: str) -> str | None:
    return Session.objects.filter(pk=session_id).values_list("agent_name", flat=True).first()


def is_session_of_procedural_agent(session_id: str) -> bool:
    """Return whether the session's runs ran a script, whose runner may be gone."""
    requested_agent = (
        Run.objects.filter(session_id=session_id).order_by("-created_at").values_list("demands", flat=True)
    )
    last = requested_agent.first()
    return isinstance(last, dict) and last.get("executor_type") == PROCEDURAL


def insert_new_session(
    session_id: str | None, agent_name: str | None, project_dir: str | None, parent: str | None, now: datetime
) -> Session:
    session_id = session_id or new_session_id()
    try:
        with transaction.atomic():
            return Session.objects.create(
                session_id=session_id,
                status=Session.Status.PENDING,
                created_at=now,
                agent_name=agent_name,
                project_dir=project_dir,
                parent_session_id=parent,
            )
    except IntegrityError:
        raise Conflict(f"Session '{session_id}' already exists") from None
