"""Every text column says whether it is masked, and no door puts a secret into one that is."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db import models

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.audit import audit
from coordinator.actions.chat import chat
from coordinator.actions.runs import run_state_machine
from coordinator.actions.sessions import reported_sessions
from coordinator.chat import reading
from coordinator.chat.content import masked_message_search_text
from coordinator.identity.actors import Actor
from coordinator.identity.keys import KeyIdentity
from coordinator.models import Agent, AuditLog, Run, Session
from coordinator.models.fields import TimeField
from coordinator.policy.requests.approvals import PermissionSubject
from coordinator.runs.blueprints import mask_blueprint_for_key
from coordinator.secrets import masked_columns
from coordinator.sessions import titles
from coordinator.sessions.reports import SessionLocation
from coordinator.sessions.wire import masked_run_as_json, polled_run_as_json
from tests.secrets.corpus import SECRETS
from tests.timelines import BEGAN, make_session

TOKEN = SECRETS["github"]
KEY = Actor("key", "ci")


def texts_of(model: type[models.Model]) -> list[str]:
    """Return the names of a model's columns of text, times aside."""
    kinds = (models.TextField, models.CharField, models.JSONField)
    return [
        field.name
        for field in model._meta.concrete_fields
        if isinstance(field, kinds) and not isinstance(field, TimeField)
    ]


def test_every_column_of_text_says_whether_it_is_masked() -> None:
    tables = apps.get_app_config("coordinator").get_models()
    found = {model.__name__: sorted(texts_of(model)) for model in tables}
    listed = {name: sorted(" ".join(rows.values()).split()) for name, rows in masked_columns.COLUMNS.items()}
    assert {name: listed.get(name, []) for name, given in found.items() if given} == {
        name: given for name, given in found.items() if given
    }


@pytest.fixture
def request_id(db: None) -> str:
    ask = NewPermissionRequest(
        PermissionSubject(f"p {TOKEN}", f"T {TOKEN}", None, f"t {TOKEN}"), "j", folder=f"/srv/{TOKEN}"
    )
    return approvals.request_permission(ask, actor=KEY, now=BEGAN).request.request_id


def stored(model: type[models.Model]) -> str:
    return repr(list(model._default_manager.values()))


def test_who_asks_and_why_it_is_withdrawn_is_masked(request_id: str) -> None:
    approvals.withdraw_request(request_id, actor=KEY, reason=f"gave {TOKEN} elsewhere", now=BEGAN)

    kept = "".join(stored(model) for model in apps.get_app_config("coordinator").get_models())
    assert TOKEN not in kept
    assert "elsewhere" in kept


def test_what_changed_is_masked_in_the_audit_log(db: None) -> None:
    env = {"shop": {"env": {"DB_PASSWORD": SECRETS["word"]}}}
    audit.record_audit_entry(
        "X", actor=KEY, target="y", result="success", reason=TOKEN, metadata={"after": env}, now=BEGAN
    )
    assert TOKEN not in stored(AuditLog)
    assert SECRETS["word"] not in stored(AuditLog)


def test_a_hooks_folder_is_masked_and_the_same_folder_reads_alike(db: None) -> None:
    for claude_id in ("one", "two"):
        reported_sessions.find_or_create_reported_session(
            claude_id, SessionLocation(f"/srv/{TOKEN}/app", "host"), BEGAN
        )
    [folder] = set(Session.objects.values_list("project_dir", flat=True))
    assert folder.startswith("/srv/[masked: GitHub token ")


@pytest.fixture
def run(db: None) -> Run:
    session = make_session("ses_a", status="running")
    return Run.objects.create(
        run_id="run_1", session=session, type="start_session", status="running", created_at=BEGAN,
        prompt=f"Use {TOKEN}.",
    )  # fmt: skip


def test_a_runs_prompt_reaches_its_runner_whole_and_readers_masked(run: Run) -> None:
    assert polled_run_as_json(run)["prompt"] == f"Use {TOKEN}."
    assert TOKEN not in str(masked_run_as_json(run))
    assert titles.load_session_titles(["ses_a"])["ses_a"].startswith("Use [masked: GitHub token ")


def test_a_run_that_has_ended_keeps_no_secret(run: Run) -> None:
    run_state_machine.try_end_run(run, run.session, Run.Status.FAILED, BEGAN, error=f"refused {TOKEN}")
    assert TOKEN not in stored(Run)


def test_chat_is_masked_but_for_the_agent_that_is_spoken_to(db: None) -> None:
    Agent.objects.create(id="ada", name="Ada", default_engine_id="x")
    said = [{"type": "text", "text": f"Here: {TOKEN}"}]
    asked = chat.submit_chat_message(
        "ada", said, speaker=chat.ChatSpeaker("user", "anna", Actor("user", "anna")), now=BEGAN
    )
    answered = chat.submit_chat_message(
        "ada", said, speaker=chat.ChatSpeaker("agent", "anna", KEY), now=BEGAN
    )

    assert reading.chat_message_as_json(asked, with_secrets=True)["content"] == said
    assert TOKEN not in str(reading.chat_message_as_json(asked)) + masked_message_search_text(asked.content)
    assert TOKEN not in str(reading.chat_message_as_json(answered, with_secrets=True))


@pytest.mark.parametrize(
    ("scope", "whole"), [("operator", True), ("runner", True), ("read", False), ("agent", False)]
)
def test_only_keys_that_run_or_edit_a_blueprint_read_its_texts_whole(scope: str, *, whole: bool) -> None:
    servers: dict[str, Any] = {
        "shop": {"command": "npx", "args": ["--token", TOKEN], "env": {"REGION": "plain-value-1"}},
        "far": {"url": "https://bob:hunter22@host/", "headers": {"X-Team": "plain-value-2"}},
    }
    shape = {"name": "a", "system_prompt": f"Use {TOKEN}", "mcp_servers": servers}
    told = mask_blueprint_for_key(KeyIdentity(id=1, name="k", scopes=frozenset({scope})), shape)

    assert (told["system_prompt"] == shape["system_prompt"]) is whole
    for secret in (TOKEN, "plain-value-1", "plain-value-2", "hunter22"):
        assert secret not in str(told["mcp_servers"])
    assert '"command": "npx"'.replace('"', "'") in str(told)
