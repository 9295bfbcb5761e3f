"""Tokens are summed by session, model and agent; costs follow the prices; nothing is made up."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from coordinator.actions.sessions.events import record_events
from coordinator.actions.usage import prices
from coordinator.errors import UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog, ModelPrice, Session
from coordinator.sessions.events import NewEvent
from coordinator.usage import prices as list_prices
from coordinator.usage import reading as usage
from tests.people import signed_in

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def spend(session_id: str, model: str, *tokens: int, agent: str = "ann", at: datetime = NOW) -> None:
    Session.objects.get_or_create(
        session_id=session_id, defaults={"status": "running", "created_at": NOW, "agent_name": agent}
    )
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    told = dict(zip(names, tokens, strict=False))
    record_events(
        [NewEvent(event_type="model_request", session_id=session_id, timestamp="", model=model, **told)], at
    )


def test_cost_is_each_kind_of_token_at_its_price() -> None:
    spend("ses_1", "claude-haiku-4-5-20251001", 1_000_000, 1_000_000, 1_000_000, 1_000_000)
    spent = usage.load_usage_by_session(["ses_1"])["ses_1"]
    assert (spent.total_tokens, spent.cost_label) == (4_000_000, "$7.35")  # 1 + 5 + 0.10 + 1.25


def test_a_model_without_a_price_has_tokens_and_no_cost() -> None:
    spend("ses_1", "gpt-x", 10, 5)
    assert usage.load_usage_by_session(["ses_1"])["ses_1"].cost_label == "no price"
    spend("ses_1", "claude-opus-4-6", 1_000_000, 0)
    assert usage.load_usage_by_session(["ses_1"])["ses_1"].cost_label == "from $5.00"


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-4-6",
        "us.anthropic.claude-opus-4-6-v1:0",
        "claude-opus-4-6-20260101",
        "claude-opus-4-6[1m]",
    ],
)
def test_a_model_is_known_under_its_other_names(name: str) -> None:
    assert list_prices.normalize_model_name(name) == "claude-opus-4-6"


def test_a_newer_model_is_not_taken_for_an_older_one() -> None:
    spend("ses_1", "claude-opus-4-99", 10, 5)
    assert not usage.load_usage_by_session(["ses_1"])["ses_1"].is_all_usage_priced


@pytest.mark.parametrize(
    ("model", "dollars"),
    [("gpt-5.1-codex", "$11.25"), ("gemini-2.5-pro", "$17.50"), ("claude-sonnet-4-5-20250929", "$18.00")],
)
def test_a_model_without_a_price_of_our_own_costs_its_list_price(model: str, dollars: str) -> None:
    spend("ses_1", model, 1_000_000, 1_000_000)
    assert usage.load_usage_by_session(["ses_1"])["ses_1"].cost_label == dollars


def test_a_price_of_our_own_wins_over_the_list_price() -> None:
    own = {"input": 7.0, "output": 0.0, "cache_read": 0.0, "cache_write": 0.0}
    prices.replace_prices_pricing_unpriced_requests(
        {"gpt-5.1-codex": own}, actor=Actor("user", "ann"), now=NOW
    )
    spend("ses_1", "gpt-5.1-codex", 1_000_000, 1_000_000)
    assert usage.load_usage_by_session(["ses_1"])["ses_1"].cost_label == "$7.00"


def test_the_page_says_where_each_price_comes_from() -> None:
    own = {"input": 7.0, "output": 0.0, "cache_read": 0.0, "cache_write": 0.0}
    prices.replace_prices_pricing_unpriced_requests({"my-model": own}, actor=Actor("user", "ann"), now=NOW)
    for model in ("gpt-5", "my-model", "nobody-knows-it"):
        spend("ses_1", model, 10, 10, at=timezone.now())
    page = signed_in("viewer").get("/ui/costs/").content.decode()
    words = " ".join(
        re.sub(r"<[^>]+>", " ", page.partition("Prices used")[2].partition("own prices")[0]).split()
    )
    assert "gpt-5 1.25 10 0.125 1.25 List price" in words
    assert "my-model 7 0 0 0 Your price" in words
    assert re.search(r"nobody-knows-it (\S ){4}No price known", words)


def test_sums_by_model_and_by_agent_agree() -> None:
    spend("ses_1", "claude-opus-4-6", 10, 5)
    spend("ses_2", "claude-haiku-4-5", 20, 7, agent="ben")
    models, agents = usage.load_model_and_agent_usage_since(NOW - timedelta(hours=1))
    assert list(models) == ["claude-opus-4-6", "claude-haiku-4-5"]
    assert agents["ben"].total_tokens == 27
    assert usage.sum_token_usages(models).total_tokens == usage.sum_token_usages(agents).total_tokens == 42


def test_the_overview_sums_the_tokens_of_a_day_and_what_they_cost() -> None:
    now = timezone.now()
    spend("ses_1", "claude-haiku-4-5", 1_000_000, 0, at=now)
    spend("ses_2", "claude-opus-4-6", 1_000_000, 0, agent="ben", at=now)
    spend("ses_2", "claude-opus-4-6", 1_000_000, 0, agent="ben", at=now - timedelta(hours=25))
    page = signed_in("viewer").get("/ui/").content.decode()
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "Tokens, 24 hours 2,000,000 $6.00" in words


def test_prices_are_edited_by_admins_and_audited() -> None:
    price = {"input": 1.0, "output": 2.0, "cache_read": 0.1, "cache_write": 1.25}
    prices.replace_prices_pricing_unpriced_requests({"gpt-x": price}, actor=Actor("user", "ann"), now=NOW)
    assert list(ModelPrice.objects.values_list("model", flat=True)) == ["gpt-x"]
    assert AuditLog.objects.get(event_type="MODEL_PRICES_SAVED").metadata["after"] == {"gpt-x": price}
    with pytest.raises(UnprocessableRequest):
        prices.replace_prices_pricing_unpriced_requests(
            {"gpt-x": price | {"input": -1}}, actor=Actor("user", "ann"), now=NOW
        )
    form = {"form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 0, "form-0-model": "m"}
    form |= {f"form-0-{kind}": 3 for kind in list_prices.KINDS}
    form["version"] = prices.compute_model_prices_version()
    assert signed_in("approver").post("/ui/costs/prices/", form).status_code == 403
    assert signed_in("admin").post("/ui/costs/prices/", form).status_code == 302
    assert ModelPrice.objects.get().output == 3
