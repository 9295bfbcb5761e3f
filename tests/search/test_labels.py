"""The words that stand for facts: remembered where they come again and again, never at the cost of memory."""

from __future__ import annotations

from coordinator.search.text import LONGEST_REMEMBERED, _remembered_label, index_word_for_fact


def test_a_huge_name_of_a_tool_has_its_word_and_is_not_kept() -> None:
    _remembered_label.cache_clear()
    huge = "x" * 1_000_000
    assert (
        index_word_for_fact("tool", huge)
        == index_word_for_fact("tool", huge)
        != index_word_for_fact("tool", huge[1:])
    )
    assert _remembered_label.cache_info().currsize == 0
    assert index_word_for_fact("tool", "x" * LONGEST_REMEMBERED).startswith("sbxtool")
    assert _remembered_label.cache_info().currsize == 1
