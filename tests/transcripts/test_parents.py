"""A session that another one started, or that was forked from it, stands below that one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.sessions import reported_sessions
from coordinator.dialects import opencode
from coordinator.edge.hooks.endpoint import build_session_location
from coordinator.identity.keys import LOCAL_PROGRAM, KeyIdentity
from coordinator.models import Session
from tests.transcripts.recorded import brought, copied

pytestmark = pytest.mark.django_db
FORK = "01a20302-f860-79b2-878d-5e9adc02dfff"


def created(session: str, by: KeyIdentity = LOCAL_PROGRAM, **info: Any) -> Session:
    """Record the first hook of a session of OpenCode, as its door does; its plugin sends the event as it came."""
    event = {"sessionID": session, "info": {"id": session, "directory": "/home/dev/shop", **info}}
    body = {"session_id": session, "hook_event_name": "session.created", "properties": event}
    hook = opencode.DIALECT.read_hook(json.dumps(body).encode(), "2026-11-26T18:00:00+00:00")
    where = build_session_location("opencode", hook, {}, by)
    known = reported_sessions.reopen_or_create_session(session, where, timezone.now())
    return Session.objects.get(pk=known.session_id)


def test_a_sub_agent_s_session_of_opencode_has_its_parent() -> None:
    parent = created("ses_parent")
    assert parent.parent_session is None
    assert created("ses_kid", parentID="ses_parent").parent_session == parent


@pytest.mark.parametrize("named", ["ses_kid", "ses_unknown", "", 7, None])
def test_what_names_no_other_session_is_no_parent(named: Any) -> None:
    assert created("ses_kid", parentID=named).parent_session is None


def test_no_session_is_its_own_ancestor() -> None:
    first = created("ses_a", parentID="ses_b")
    second = created("ses_b", parentID="ses_a")
    assert (first.parent_session, second.parent_session) == (None, first)
    assert created("ses_a", parentID="ses_b").parent_session is None


def test_a_session_of_another_s_is_no_parent() -> None:
    created("ses_parent")
    stranger = KeyIdentity(id=9, name="other", scopes=frozenset({"agent"}), agent_id="other")
    assert created("ses_kid", stranger, parentID="ses_parent").parent_session is None


def test_a_fork_of_codex_that_is_imported_has_its_parent(tmp_path: Path) -> None:
    folder = copied("codex", tmp_path)
    (file,) = folder.rglob("rollout-*.jsonl")
    parent = file.stem[-36:]
    first, *rest = file.read_text().splitlines()
    meta = json.loads(first)
    meta["payload"] |= {"id": FORK, "session_id": FORK, "forked_from_id": parent}
    fork = file.with_name(file.name.replace("11-27-36", "11-30-00").replace(parent, FORK))
    fork.write_text("\n".join([json.dumps(meta), *rest]) + "\n")
    brought("codex", folder)
    found = {one.executor_session_id: one for one in Session.objects.all()}
    assert found[FORK].parent_session == found[parent]
