"""What a million tokens of a model cost: a price of one's own first, else the list price that the field publishes.

List prices come from the package `genai-prices` (its data is shipped with it; nothing is fetched). They are the base
prices: what a provider adds for very long prompts, searches or longer caches is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from coordinator.models import ModelPrice

KINDS = ("input", "output", "cache_read", "cache_write")
MILLION = 1_000_000
# Tokens of one kind of one event that count: agents tell them, and one cannot spoil the sums.
MOST_TOKENS = 1_000_000_000
# What clouds and options add to a model's name: `us.anthropic.…`, `…-20250514`, `…@latest`, `…-v1:0`, `…[1m]`.
_PREFIX = re.compile(r"^(?:[a-z]{2,6}\.)?anthropic[./]|^models/")
_SUFFIX = re.compile(r"(?:\[[^\]]*\]|@[\w.-]+|-v\d+(?::\d+)?|-20\d{6}|-latest)$")


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """US dollars for a million tokens of each kind; `listed`: the list price, not one that somebody here set."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    listed: bool = False

    def cost_of_tokens(self, tokens: Mapping[str, int]) -> float:
        """Return what these tokens, by kind, cost in US dollars."""
        return sum(tokens[kind] * float(getattr(self, kind)) for kind in KINDS) / MILLION


def normalize_model_name(model: str) -> str:
    """Return a model's name without what clouds, dates and options add to it."""
    name, before = _PREFIX.sub("", model.strip().lower()), ""
    while name != before:
        name, before = _SUFFIX.sub("", name), name
    return name


def load_own_prices() -> dict[str, TokenPrice]:
    """Return the prices that people here have set, by the model's plain name."""
    rows = ModelPrice.objects.order_by("model").values("model", *KINDS)
    return {normalize_model_name(row["model"]): TokenPrice(*(row[kind] for kind in KINDS)) for row in rows}


def find_model_price(model: str, own: Mapping[str, TokenPrice]) -> TokenPrice | None:
    """Return the price of a model by the name that an agent reported; None where nobody knows one."""
    name = normalize_model_name(model)
    return own.get(name) or find_list_price(name)


@lru_cache(maxsize=512)  # names come from agents: bounded
def find_list_price(name: str) -> TokenPrice | None:
    """Return the list price of a model by its plain name, or None."""
    from genai_prices import Usage, calc_price  # noqa: PLC0415 - 24 MB and 0.13 s, only where a model has no own price

    def price_per_million(**tokens: int) -> float:
        return float(calc_price(Usage(**tokens), model_ref=name).total_price * MILLION)

    try:
        return TokenPrice(
            input=price_per_million(input_tokens=1),
            output=price_per_million(output_tokens=1),
            cache_read=price_per_million(input_tokens=1, cache_read_tokens=1),
            cache_write=price_per_million(input_tokens=1, cache_write_tokens=1),
            listed=True,
        )
    except (LookupError, ValueError):
        return None
