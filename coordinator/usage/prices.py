"""What a request to a model costs: a price of one's own first, else the list price of the day of the request.

List prices come from the package `genai-prices` (its data is shipped with it; nothing is fetched). Of what raises or
lowers them, that counts which the list knows: caches of an hour, web searches, fast and flexible tiers, batches, and
very long prompts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from django.db import connection

from coordinator.usage.amounts import NO_DETAIL, RequestAmounts, UsageDetail

KINDS = ("input", "output", "cache_read", "cache_write")
MILLION = 1_000_000
OWN_PRICES = f"SELECT model, {', '.join(KINDS)} FROM model_prices ORDER BY model"  # noqa: S608 - names of ours
# What clouds and options add to a model's name: `us.anthropic.…`, `…-20250514`, `…@latest`, `…-v1:0`, `…[1m]`.
_PREFIX = re.compile(r"^(?:[a-z]{2,6}\.)?anthropic[./]|^models/")
_SUFFIX = re.compile(r"(?:\[[^\]]*\]|@[\w.-]+|-v\d+(?::\d+)?|-20\d{6}|-latest)$")
LONG_WINDOW = "[1m]"  # what Claude Code adds to the name of a model whose long window it asks for
# Providers whose long prompts cost more only where the long window was asked for.
LONG_WINDOW_PROVIDERS = frozenset({"anthropic"})


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """US dollars for a million tokens of each kind; `listed`: the list price, not one that somebody here set.

    Prompts of more than `long_from` tokens are priced by `long_price` as a whole.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    listed: bool = False
    cache_write_1h: float | None = None  # None: as `cache_write`
    web_search: float = 0.0  # US dollars for one
    long_from: int | None = None
    long_price: TokenPrice | None = None
    needs_long_window: bool = False

    def cost_of_tokens(self, tokens: Mapping[str, int]) -> float:
        """Return what these tokens, by kind, cost in US dollars."""
        return sum(tokens[kind] * float(getattr(self, kind)) for kind in KINDS) / MILLION

    def cost_of_request(self, amounts: RequestAmounts, *, long_window: bool = False) -> float:
        """Return what one request cost in US dollars; `long_window` says that the long context was asked for."""
        is_long = self.long_from is not None and amounts.prompt_tokens > self.long_from
        if is_long and self.long_price is not None and (long_window or not self.needs_long_window):
            return self.long_price.cost_of_request(amounts)
        hour = self.cache_write if self.cache_write_1h is None else self.cache_write_1h
        dollars = (
            amounts.input_tokens * self.input
            + amounts.output_tokens * self.output
            + amounts.cache_read_tokens * self.cache_read
            + amounts.cache_write_5m_tokens * self.cache_write
            + amounts.cache_write_1h_tokens * hour
        )
        return dollars / MILLION + amounts.web_searches * self.web_search


def normalize_model_name(model: str) -> str:
    """Return a model's name without what clouds, dates and options add to it."""
    name, before = _PREFIX.sub("", model.strip().lower()), ""
    while name != before:
        name, before = _SUFFIX.sub("", name), name
    return name


def load_configured_model_prices() -> dict[str, TokenPrice]:
    """Return the prices that people here have set, by the model's plain name.

    In plain SQL: each group of events with tokens asks it, and building the query would take half of their counting.
    """
    with connection.cursor() as cursor:
        cursor.execute(OWN_PRICES)
        rows = cursor.fetchall()
    return {normalize_model_name(model): TokenPrice(*prices) for model, *prices in rows}


def find_model_price(
    model: str,
    own: Mapping[str, TokenPrice],
    at: datetime | None = None,
    detail: UsageDetail = NO_DETAIL,
) -> TokenPrice | None:
    """Return the price of a model by the name that an agent reported; None where nobody knows one.

    - `at`: the instant of the request; now where it is left out.
    - `detail`: the tier, speed and kind of the request, which have prices of their own.
    """
    name = normalize_model_name(model)
    own_price = own.get(name) or own.get(name.rpartition("/")[2])
    listed = find_list_price(
        name,
        (at or datetime.now(UTC)).astimezone(UTC).date(),
        (detail.speed, detail.service_tier, detail.is_batch),
    )
    if own_price is None:
        return listed
    return replace(own_price, web_search=listed.web_search) if listed is not None else own_price


def calculate_request_cost(
    model: str, amounts: RequestAmounts, own: Mapping[str, TokenPrice], at: datetime, detail: UsageDetail
) -> float | None:
    """Return what a request cost in US dollars; None where nobody knows a price. What used nothing costs nothing."""
    price = find_model_price(model, own, at, detail)
    if price is None:
        return None if amounts.total_tokens or amounts.web_searches else 0.0
    return price.cost_of_request(amounts, long_window=detail.has_long_window or LONG_WINDOW in model)


@lru_cache(maxsize=4096)  # names come from agents: bounded; an import asks for each model and day
def find_list_price(name: str, day: date, how: tuple[str | None, str | None, bool]) -> TokenPrice | None:
    """Return the list price of a model by its plain name on a day, or None.

    `how` is the request's speed, its service tier, and whether it was part of a batch. A fast request to a model of
    which the list has no such price has none.
    """
    # 24 MB and 0.13 s, only where something has to be priced
    from genai_prices import Usage, calc_price  # noqa: PLC0415

    speed, tier, is_batch = how
    price_conditions = {"speed": speed, "service_tier": tier, "processing": "batch" if is_batch else None}
    context = {key: value for key, value in price_conditions.items() if value}
    at = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    for provider, model in candidate_price_providers_and_models(name):
        price_query: dict[str, Any] = {"provider_id": provider, "genai_request_timestamp": at}
        try:
            plain = calc_price(Usage(input_tokens=1), model, **price_query)
            list_price = (
                calc_price(Usage(input_tokens=1), model, price_context=context, **price_query)
                if context
                else plain
            )
        except (LookupError, ValueError):
            continue
        if speed == "fast" and list_price.model_price == plain.model_price:
            return None
        return token_price_from_list_entry(list_price.model_price, list_price.provider.id)
    return None


def candidate_price_providers_and_models(name: str) -> list[tuple[str | None, str]]:
    """Return the provider and the model under which a list may know a name: `gpt-4o`, `openai/gpt-4o` and longer."""
    first, slash, rest = name.partition("/")
    last = name.rpartition("/")[2]
    references: list[tuple[str | None, str]] = [(None, name)]
    if slash:
        references += [(first, rest), (first, normalize_model_name(last))]
        references.append((None, normalize_model_name(last)))
    return references


def token_price_from_list_entry(listed: Any, provider: str) -> TokenPrice | None:
    """Return a price of the list as ours; None where it has none for tokens in and out."""
    if listed.input_mtok is None or listed.output_mtok is None:
        return None
    starts = {
        tier.start
        for name in ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
        for tier in getattr(getattr(listed, name), "tiers", ())
    }
    price = convert_listed_price_for_prompt(listed, 0)
    if starts:
        start = min(starts)
        price = replace(
            price,
            long_from=start,
            long_price=convert_listed_price_for_prompt(listed, start + 1),
            needs_long_window=provider in LONG_WINDOW_PROVIDERS,
        )
    return price


def convert_listed_price_for_prompt(listed: Any, prompt_tokens: int) -> TokenPrice:
    """Return what the list says for prompts of so many tokens. A kind without a price costs as what it is part of."""

    def listed_price_per_million_tokens(name: str, otherwise: float) -> float:
        value = getattr(listed, name)
        if value is None:
            return otherwise
        tiers = [tier.price for tier in getattr(value, "tiers", ()) if prompt_tokens > tier.start]
        return float(tiers[-1] if tiers else getattr(value, "base", value))

    input_price = listed_price_per_million_tokens("input_mtok", 0.0)
    written = listed_price_per_million_tokens("cache_write_mtok", input_price)
    return TokenPrice(
        input=input_price,
        output=listed_price_per_million_tokens("output_mtok", 0.0),
        cache_read=listed_price_per_million_tokens("cache_read_mtok", input_price),
        cache_write=written,
        listed=True,
        cache_write_1h=listed_price_per_million_tokens("cache_write_1h_mtok", written),
        web_search=listed_price_per_million_tokens("web_searches_kcount", 0.0) / 1000,
    )
