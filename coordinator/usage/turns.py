"""What a session used turn by turn, and how full its context was with each request. Only reads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from coordinator.lib import instants
from coordinator.models import EventContext, ModelRequestUsage
from coordinator.usage.prices import LONG_WINDOW, candidate_price_providers_and_models, normalize_model_name
from coordinator.usage.reading import TokenUsage

MAX_REQUESTS = 20_000  # of a session, the newest, that a page reads
MAX_MARKS = 5_000  # prompts and compactions of a session
COMPACTION_EVENTS = ("compaction", "PostCompact", "PostCompress")
# Claude's models have this window, unless the long one is asked for or a larger prompt was answered.
CLAUDE_WINDOW_TOKENS = 200_000


@dataclass(frozen=True, slots=True)
class TurnTotals:
    """What the requests between two prompts of a person used."""

    start_us: int  # of its first request
    usage: TokenUsage
    context_tokens: int = 0  # what the session's own agent sent with its last request
    model: str = ""  # of that request
    has_new_model: bool = False
    compactions: int = 0

    @property
    def started_at(self) -> datetime | None:
        """Return when the turn began; None beyond all years."""
        try:
            return instants.instant_from_microseconds(self.start_us)
        except (OverflowError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class ContextFill:
    """How much a request of the session's own agent put into the model's context."""

    at_us: int
    tokens: int
    model: str
    is_compacted: bool = False  # whether the conversation was compacted since the request before
    has_new_model: bool = False


@dataclass(frozen=True, slots=True)
class SessionUsage:
    """A session's turns and its context, oldest first; `is_whole` is false where it has more than a page reads."""

    turns: Sequence[TurnTotals]
    context: Sequence[ContextFill]
    is_whole: bool = True

    @property
    def last_used_model_or_empty(self) -> str:
        return self.context[-1].model if self.context else ""

    @property
    def largest_context_tokens(self) -> int:
        return max((fill.tokens for fill in self.context), default=0)


def load_session_turn_usage(session_id: str) -> SessionUsage:
    """Return what a session used by turn, and how full its context was."""
    newest = ModelRequestUsage.objects.filter(session_id=session_id).order_by("-at_us", "-id")
    rows = list(newest[:MAX_REQUESTS])[::-1]
    if not rows:
        return SessionUsage((), ())
    events = EventContext.objects.filter(session_id=session_id, subagent__isnull=True).order_by("-instant_us")
    answers = events.filter(event__event_type="message", event__role="assistant", model__isnull=False)
    models = {
        normalize_model_name(model or "")
        for model in answers.order_by().values_list("model", flat=True).distinct()
    }
    prompts = events.filter(event__event_type="message", event__role="user")
    compactions = events.filter(event__event_type__in=COMPACTION_EVENTS)
    prompt_instants, compaction_instants = (
        sorted(
            cap_instant_at_receipt(*instants_of_mark)
            for instants_of_mark in marks.values_list("instant_us", "received_at")[:MAX_MARKS]
        )
        for marks in (prompts, compactions)
    )
    return SessionUsage(
        build_turn_totals(rows, prompt_instants, compaction_instants, models),
        build_context_fills(rows, compaction_instants, models),
        is_whole=len(rows) < MAX_REQUESTS,
    )


def cap_instant_at_receipt(instant_us: int, received_at: datetime | None) -> int:
    """Return when an event happened, in microseconds; by a clock that runs ahead, its receipt, as for requests."""
    if not isinstance(received_at, datetime):
        return instant_us
    return min(instant_us, instants.instant_to_microseconds(received_at))


def is_request_of_main_conversation(row: ModelRequestUsage, models: Collection[str]) -> bool:
    """Say whether a request continues the session's own conversation.

    Not a sub-agent's, and not one that the agent sends to a small model beside it, for a title or a check: that model
    gives none of the answers (`models`, normalized, give them; empty where no answer tells its model).
    """
    return row.subagent is None and (not models or normalize_model_name(row.model) in models)


def build_turn_totals(
    rows: Iterable[ModelRequestUsage],
    prompts: Sequence[int],
    compactions: Sequence[int],
    models: Collection[str] = (),
) -> list[TurnTotals]:
    """Return the turns that these requests, oldest first, belong to.

    `models` as in `is_request_of_main_conversation`.
    """
    turn_totals: list[TurnTotals] = []
    previous_number, model, before_us = -1, "", 0
    for row in rows:
        number = bisect_right(prompts, row.at_us)
        if not turn_totals or number != previous_number:
            turn_totals.append(TurnTotals(row.at_us, TokenUsage(), model=model))
            previous_number = number
        turn = turn_totals[-1]
        turn = replace(turn, usage=turn.usage + token_usage_of_request_row(row))
        if is_request_of_main_conversation(row, models):
            turn = replace(
                turn,
                context_tokens=prompt_tokens_of_request_row(row),
                has_new_model=turn.has_new_model or bool(model and row.model != model),
                model=row.model,
                compactions=turn.compactions + count_instants_between(compactions, before_us, row.at_us),
            )
            model, before_us = row.model, row.at_us
        turn_totals[-1] = turn
    return turn_totals


def build_context_fills(
    rows: Iterable[ModelRequestUsage], compactions: Sequence[int], models: Collection[str] = ()
) -> list[ContextFill]:
    """Return how full the context was with each request of the conversation.

    `models` as in `is_request_of_main_conversation`.
    """
    fills: list[ContextFill] = []
    for row in rows:
        if not is_request_of_main_conversation(row, models):
            continue
        before = fills[-1] if fills else None
        fills.append(
            ContextFill(
                row.at_us,
                prompt_tokens_of_request_row(row),
                row.model,
                before is not None and count_instants_between(compactions, before.at_us, row.at_us) > 0,
                before is not None and before.model != row.model,
            )
        )
    return fills


def count_instants_between(instants_us: Sequence[int], after: int, upto: int) -> int:
    return bisect_right(instants_us, upto) - bisect_right(instants_us, after)


def token_usage_of_request_row(row: ModelRequestUsage) -> TokenUsage:
    """Return one request's usage."""
    written = row.cache_write_5m_tokens + row.cache_write_1h_tokens
    tokens = row.input_tokens + row.output_tokens + row.cache_read_tokens + written
    return TokenUsage(
        input=row.input_tokens,
        output=row.output_tokens,
        cache_read=row.cache_read_tokens,
        cache_write=written,
        cost=row.cost or 0.0,
        unpriced_tokens=tokens if row.cost is None else 0,
        requests=1,
        cache_write_1h=row.cache_write_1h_tokens,
        reasoning=row.reasoning_tokens,
        web_searches=row.web_searches,
    )


def prompt_tokens_of_request_row(row: ModelRequestUsage) -> int:
    return row.input_tokens + row.cache_read_tokens + row.cache_write_5m_tokens + row.cache_write_1h_tokens


def find_model_context_window_tokens(model: str, largest_prompt: int = 0) -> int | None:
    """Return how many tokens a model's context holds, by the list of prices; None where it does not say.

    Claude's models have a long window that must be asked for: it counts where the name says so, or where a prompt was
    larger than the other.
    """
    # 24 MB and 0.13 s, only where it is asked
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    for provider, name in candidate_price_providers_and_models(normalize_model_name(model)):
        try:
            found_provider, listed = get_snapshot().find_provider_model(name, None, provider, None)
        except LookupError:
            continue
        window = listed.context_window
        if window is None:
            continue
        is_short = found_provider.id == "anthropic" and LONG_WINDOW not in model
        if is_short and largest_prompt <= CLAUDE_WINDOW_TOKENS:
            window = min(window, CLAUDE_WINDOW_TOKENS)
        return window if largest_prompt <= window else None
    return None
