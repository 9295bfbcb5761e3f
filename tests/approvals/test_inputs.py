"""Nothing of an input is ever lost on its way to the person who judges it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.inputs import Part, parts_of
from dashboard.templatetags.approvals import reveal

texts = st.text(max_size=300)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(
    ["command", "old_string", "new_string", "file_path", "content", "edits", "replace_all"]
)
edits = st.lists(st.fixed_dictionaries({"old_string": texts, "new_string": texts}), max_size=3)
inputs = st.dictionaries(names | texts, values | edits, max_size=6)


def shown(parts: list[Part]) -> str:
    lines = ["\n".join(line.text for line in part.lines) for part in parts]
    return "\n".join([part.label for part in parts] + [part.text for part in parts] + lines)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in leaves(one)]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


@given(inputs)
def test_every_line_of_every_value_is_shown(tool_input: dict[str, Any]) -> None:
    text = shown(parts_of(tool_input))
    for leaf in leaves(tool_input):
        if isinstance(leaf, str):
            quoted = json.dumps(leaf, ensure_ascii=False)[1:-1]
            assert quoted in text or all(line in text for line in leaf.split("\n"))
        else:
            assert json.dumps(leaf) in text


def test_the_name_of_every_other_field_is_shown() -> None:
    text = shown(parts_of({"command": "ls", "run_in_background": True, "timeout": 5}))
    assert "run_in_background" in text
    assert "timeout" in text


@given(texts, texts)
def test_a_diff_gives_back_both_texts(old: str, new: str) -> None:
    [part] = [part for part in parts_of({"old_string": old, "new_string": new}) if part.kind == "diff"]
    assert "\n".join(line.text for line in part.lines if line.sign in " -") == old
    assert "\n".join(line.text for line in part.lines if line.sign in " +") == new


def test_two_texts_too_long_to_compare_are_shown_whole() -> None:
    old, new = "\n".join(map(str, range(3000))), "\n".join(map(str, range(1, 3001)))
    [part] = parts_of({"old_string": old, "new_string": new})
    assert part.height == 6000


@pytest.mark.parametrize("value", ["just words", ["a", 1], 7, True])
def test_an_input_that_is_no_object_is_shown_too(value: Any) -> None:
    assert str(value).strip("[]'").split(",")[0].strip("'").lower() in shown(parts_of(value)).lower()


@pytest.mark.parametrize(
    "char", ["\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\x00", "\x1b", "\r", "\u00a0", "\u2028"]
)
def test_what_an_eye_misses_is_revealed(char: str) -> None:
    assert f"U+{ord(char):04X}" in reveal(f"a{char}b")
    assert char not in reveal(f"a{char}b")


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"]), max_size=50))
def test_what_can_be_seen_is_left_alone_but_never_markup(text: str) -> None:
    from html import unescape

    assert unescape(reveal(text)) == text
    assert "<" not in reveal(text)
