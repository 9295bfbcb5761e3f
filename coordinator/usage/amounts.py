"""What one request to a model used, beside the tokens that its event has columns for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Tokens of one kind of one request that count: agents report them, and one cannot spoil the sums.
MOST_TOKENS = 1_000_000_000
MOST_SEARCHES = 1_000_000
LONGEST_NAME = 200  # characters of a model's or a provider's name that are stored
UNKNOWN_MODEL = "unknown"


@dataclass(frozen=True, slots=True)
class UsageDetail:
    """What a source reports of a request beside its tokens in and out, read from and written to a cache.

    Reasoning tokens are part of the output, tool tokens part of the input: they are counted there, and only shown
    apart. The tokens written to a cache for an hour are part of all that were written to it.
    """

    provider: str | None = None
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    tool_tokens: int = 0
    web_searches: int = 0
    speed: str | None = None  # as Anthropic calls it: `fast`
    service_tier: str | None = None  # as OpenAI calls it: `flex`, `priority`, `fast`
    is_batch: bool = False
    # Whether the request was for the long context window, which some models charge more for.
    has_long_window: bool = False
    # What the agent itself says that the request cost, in US dollars.
    reported_cost: float | None = None


NO_DETAIL = UsageDetail()


@dataclass(frozen=True, slots=True)
class RequestAmounts:
    """All that one request used, within bounds."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    tool_tokens: int = 0
    web_searches: int = 0

    @property
    def cache_write_tokens(self) -> int:
        return self.cache_write_5m_tokens + self.cache_write_1h_tokens

    @property
    def prompt_tokens(self) -> int:
        """All that went into the model, from wherever it came."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens


AMOUNTS = tuple(RequestAmounts.__dataclass_fields__)


def build_model_request_amounts(tokens: Mapping[str, int | None], detail: UsageDetail) -> RequestAmounts:
    """Return the amounts of a request from its event's columns (`input_tokens` and others) and the detail."""
    output, written = (
        clamp_reported_token_count(tokens.get("output_tokens")),
        clamp_reported_token_count(tokens.get("cache_write_tokens")),
    )
    for_an_hour = min(clamp_reported_token_count(detail.cache_write_1h_tokens), written)
    return RequestAmounts(
        input_tokens=clamp_reported_token_count(tokens.get("input_tokens")),
        output_tokens=output,
        cache_read_tokens=clamp_reported_token_count(tokens.get("cache_read_tokens")),
        cache_write_5m_tokens=written - for_an_hour,
        cache_write_1h_tokens=for_an_hour,
        reasoning_tokens=min(clamp_reported_token_count(detail.reasoning_tokens), output),
        tool_tokens=clamp_reported_token_count(detail.tool_tokens),
        web_searches=clamp_reported_token_count(detail.web_searches, MOST_SEARCHES),
    )


def clamp_reported_token_count(value: Any, most: int = MOST_TOKENS) -> int:
    """Return a count within 0 and `most`; 0 for what is no whole number."""
    return min(max(value, 0), most) if isinstance(value, int) and not isinstance(value, bool) else 0
