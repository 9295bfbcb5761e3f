"""A request costs what the list says for its day; what the list does not know has no price."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from genai_prices import Usage, calc_price

from coordinator.usage import prices
from coordinator.usage.amounts import NO_DETAIL, RequestAmounts, UsageDetail

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


def cost(
    model: str, amounts: RequestAmounts, at: datetime = AT, detail: UsageDetail = NO_DETAIL
) -> float | None:
    return prices.calculate_request_cost(model, amounts, {}, at, detail)


@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-4-6",
        "claude-haiku-4-5",
        "gpt-5.2-codex",
        "gpt-4o",
        "gemini-2.5-pro",
        "gpt-5.5",
        "grok-4",
    ],
)
@pytest.mark.parametrize("prompt", [1_000, 250_000, 300_000])
def test_a_request_costs_what_the_package_says(model: str, prompt: int) -> None:
    amounts = RequestAmounts(prompt - 600, 77, 300, 200, 100, web_searches=3)
    listed = calc_price(
        Usage(
            input_tokens=prompt, output_tokens=77, cache_read_tokens=300, cache_write_tokens=300,
            cache_write_1h_tokens=100, web_searches=3,
        ),
        model,
        genai_request_timestamp=AT,
    )  # fmt: skip
    assert cost(model, amounts) == pytest.approx(float(listed.total_price))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("openai/gpt-4o", "gpt-4o"),
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("google/gemini-2.5-pro", "gemini-2.5-pro"),
        ("vertex_ai/gemini-2.5-pro", "gemini-2.5-pro"),
        ("openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
    ],
)
def test_a_name_with_its_provider_has_a_price(name: str, plain: str) -> None:
    amounts = RequestAmounts(1000, 10)
    assert cost(name, amounts) == cost(plain, amounts) != None  # noqa: E711


def test_the_price_is_that_of_the_day() -> None:
    amounts = RequestAmounts(0, 0, 0, 0, 0), RequestAmounts(300_000, 1000)
    assert cost("claude-opus-4-6", amounts[0]) == 0
    long = UsageDetail(has_long_window=True)
    before, after = datetime(2026, 3, 12, tzinfo=UTC), datetime(2026, 3, 13, tzinfo=UTC)
    assert cost("claude-opus-4-6", amounts[1], before, long) == pytest.approx(3.0375)
    assert cost("claude-opus-4-6", amounts[1], after, long) == pytest.approx(1.525)


def test_claude_s_long_prompts_cost_more_where_the_long_window_was_asked_for() -> None:
    amounts = RequestAmounts(300_000, 0)
    assert cost("claude-sonnet-4-5", amounts) == pytest.approx(0.9)
    assert cost("claude-sonnet-4-5[1m]", amounts) == pytest.approx(1.8)


def test_fast_requests_and_batches_have_prices_of_their_own_where_the_list_knows_them() -> None:
    amounts = RequestAmounts(1_000_000, 0)
    assert cost("claude-opus-4-8", amounts, detail=UsageDetail(speed="fast")) == pytest.approx(10)
    assert cost("claude-opus-4-6", amounts, detail=UsageDetail(speed="fast")) is None
    assert cost("claude-opus-4-6", amounts, detail=UsageDetail(is_batch=True)) == pytest.approx(2.5)
    assert cost("gpt-5.2", amounts, detail=UsageDetail(service_tier="fast")) == pytest.approx(3.5)


def test_no_price_is_none_and_never_zero() -> None:
    assert cost("nobody-knows-it", RequestAmounts(1)) is None
    assert cost("nobody-knows-it", RequestAmounts()) == 0
