"""Upkeep of the search index: new events are added, deleted and changed ones removed, and it can be rebuilt."""

from __future__ import annotations

from coordinator.actions.search.indexing import (
    count_unindexed_events,
    index_new_events,
    index_slice_and_count_events,
    rebuild_search_index,
)
from coordinator.actions.search.unindexing import mark_index_for_word_cleanup, unindex_deleted_events

__all__ = [
    "count_unindexed_events",
    "index_new_events",
    "index_slice_and_count_events",
    "mark_index_for_word_cleanup",
    "rebuild_search_index",
    "unindex_deleted_events",
]
