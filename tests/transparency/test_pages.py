"""How the pages tell of the log: sealed, waiting, altered; a proof to download; how to verify."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from coordinator.actions.audit import audit
from coordinator.identity.actors import system_actor
from coordinator.models import AuditCheckpoint, AuditLeaf, AuditLog
from coordinator.transparency import keys
from tests.guards import callers
from tests.transparency.conftest import seal

pytestmark = pytest.mark.django_db(transaction=True)
Write = Callable[[int], list[AuditLog]]


@pytest.fixture
def viewer() -> Client:
    return callers.browser(callers.people()["viewer"])


def page(client: Client, name: str, *args: Any) -> str:
    return " ".join(client.get(reverse(f"audit:{name}", args=args)).content.decode().split())


def test_an_entry_says_whether_it_is_sealed_and_gives_its_proof(viewer: Client, write: Write) -> None:
    (row,) = write(1)
    assert "Not sealed yet" in page(viewer, "detail", row.pk)
    assert "Download the proof" not in page(viewer, "detail", row.pk)
    refused = viewer.get(reverse("audit:proof", args=[row.pk]), follow=True)
    assert "this entry is not sealed yet" in refused.content.decode()
    seal()
    assert "Entry 0, sealed" in page(viewer, "detail", row.pk)
    answer = viewer.get(reverse("audit:proof", args=[row.pk]))
    assert answer.content.decode().startswith("c2sp.org/tlog-proof@v1\n")
    assert f'filename="audit-{row.pk}.tlog-proof"' in answer.headers["Content-Disposition"]


def test_an_altered_entry_says_so_loudly(viewer: Client, write: Write) -> None:
    (row, _) = write(2)
    seal()
    AuditLog.objects.filter(pk=row.pk).update(actor_id="user:mallory")
    shown = page(viewer, "detail", row.pk)
    assert "<strong>Do not trust this entry.</strong> The row was changed after it was written" in shown
    assert "Download the proof" not in shown
    listed = page(viewer, "list")
    assert listed.count("Altered") == 1
    assert listed.index(f'id="audit-{row.pk}"') < listed.index("Altered")


def test_the_list_says_how_far_the_log_is_sealed(viewer: Client, write: Write) -> None:
    write(3)
    seal()
    assert "3 entries are sealed" in page(viewer, "list")
    audit.record_audit_entry(
        "X",
        actor=system_actor("tests"),
        target=None,
        result="success",
        now=timezone.now() - timedelta(minutes=6),
    )
    assert "<strong>Sealing has stopped.</strong> Entries waiting: 1." in page(viewer, "list")
    AuditLeaf.objects.filter(leaf_index__gt=0).delete()
    assert "<strong>Entries are missing.</strong>" in page(viewer, "list")


def test_the_page_to_verify_has_the_key_the_checkpoint_and_the_program(
    viewer: Client, write: Write, settings: Any
) -> None:
    empty = page(viewer, "verify")
    assert "No keys yet" in empty
    assert "Checkpoints are not sent anywhere" in empty
    write(1)
    seal()
    settings.AUDIT_CHECKPOINTS = ["file:/nowhere/kept"]
    shown = page(viewer, "verify")
    assert keys.load_or_create_audit_signer().public_verifier.public_key_text in shown
    assert AuditCheckpoint.objects.get().note.split("\n")[2] in shown
    assert "file:/nowhere/kept" in shown
    settings.AUDIT_CHECKPOINTS = ["nonsense"]
    assert "has a part that is not understood" in page(viewer, "verify")
    program = b"".join(viewer.get(reverse("audit:verifier")).streaming_content)  # type: ignore[attr-defined]
    compile(program, "verify_audit.py", "exec")
