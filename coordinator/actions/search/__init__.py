"""Keeps the search index up with the events: adds new ones, forgets deleted and changed ones, builds it afresh."""

from __future__ import annotations

from coordinator.actions.search.forgetting import forget_deleted, note_gone
from coordinator.actions.search.indexing import behind, index_new, index_some, rebuild

__all__ = ["behind", "forget_deleted", "index_new", "index_some", "note_gone", "rebuild"]
