"""What a deleted session used counts once when its transcript is imported again."""

from __future__ import annotations

import pytest

from coordinator.models import Session
from tests.usage.test_transcripts import DATA, bring, days, figures, total

pytestmark = pytest.mark.django_db


def test_tokens_count_once() -> None:
    bring("codex", DATA / "codex_replay")
    before = figures(total()), days()
    Session.objects.all().delete()
    bring("codex", DATA / "codex_replay")
    assert (figures(total()), days()) == before
