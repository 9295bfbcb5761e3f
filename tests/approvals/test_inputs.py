"""Nothing of an input is ever lost on its way to the person who judges it."""

from __future__ import annotations

import json
import unicodedata
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coordinator.lib.invisible import has_invisible_character, is_invisible_character
from coordinator.lib.lookalikes import has_lookalike_characters
from dashboard.looks.inputs import build_exact_input_parts_for_approver
from dashboard.looks.parts import DisplayPart
from dashboard.templatetags.approvals import render_verdict_options, reveal

UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})

texts = st.text(max_size=300)
visible = st.characters(categories=["L", "N", "P", "S"]).filter(lambda char: not is_invisible_character(char))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(
    [
        *("command", "cmd", "script", "file_path", "path", "content", "text", "edits", "replace_all"),
        *("old_string", "new_string", "old_str", "new_str", "new_source"),
    ]
)
edits = st.lists(st.fixed_dictionaries({"old_string": texts, "new_string": texts}), max_size=3)
inputs = st.dictionaries(names | texts, values | edits, max_size=6)


def shown(parts: list[DisplayPart]) -> str:
    assert all(part.exact and not part.cut for part in parts)
    return "\n".join(text for part in parts for text in part.drawn_texts)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in leaves(one)]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


@settings(deadline=None)  # the sandbox may have to be started
@given(inputs)
def test_every_line_of_every_value_is_shown(tool_input: dict[str, Any]) -> None:
    text = shown(build_exact_input_parts_for_approver(tool_input))
    for leaf in leaves(tool_input):
        if isinstance(leaf, str):
            quoted = json.dumps(leaf, ensure_ascii=False)[1:-1]
            assert quoted in text or all(line in text for line in leaf.split("\n"))
        else:
            assert json.dumps(leaf) in text


def test_the_name_of_every_other_field_is_shown() -> None:
    text = shown(
        build_exact_input_parts_for_approver({"command": "ls", "run_in_background": True, "timeout": 5})
    )
    assert "run_in_background" in text
    assert "timeout" in text


@settings(deadline=None)
@given(texts, texts)
def test_a_diff_gives_back_both_texts(old: str, new: str) -> None:
    [part] = [
        part
        for part in build_exact_input_parts_for_approver({"old_string": old, "new_string": new})
        if part.kind == "diff"
    ]
    assert "\n".join(line for sign, line in part.value if sign in " -") == old
    assert "\n".join(line for sign, line in part.value if sign in " +") == new


def test_two_texts_too_long_to_compare_are_shown_whole() -> None:
    old, new = "\n".join(map(str, range(3000))), "\n".join(map(str, range(1, 3001)))
    before, after = build_exact_input_parts_for_approver({"old_string": old, "new_string": new})
    assert (before.value, after.value) == (old, new)
    assert "too large to compare" in before.label


@pytest.mark.parametrize("value", ["just words", ["a", 1], 7, True])
def test_an_input_that_is_no_object_is_shown_too(value: Any) -> None:
    assert (
        str(value).strip("[]'").split(",")[0].strip("'").lower()
        in shown(build_exact_input_parts_for_approver(value)).lower()
    )


@pytest.mark.parametrize(
    "char", ["\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\x00", "\x1b", "\r", "\u00a0", "\u2028"]
)
def test_what_an_eye_misses_is_revealed(char: str) -> None:
    assert f"U+{ord(char):04X}" in reveal(f"a{char}b")
    assert char not in reveal(f"a{char}b")


@pytest.mark.parametrize("char", "\u3164\u115f\u1160\uffa0\u2800\u034f\u17b4\u17b5\ufe0f\U000e0101\U0001d159")
def test_letters_and_marks_that_look_like_nothing_are_revealed(char: str) -> None:
    assert f"U+{ord(char):04X}" in reveal(f"a{char}b")
    assert has_invisible_character(f"a{char}b")


def test_all_of_unicode_is_either_seen_or_revealed() -> None:
    """What the character database calls a filler or a blank is drawn by nobody, but for signs that picture one."""
    drawn = ("GAP FILLER", "LINE FILLER", "BLANK SYMBOL")
    nothing = ("FILLER", "BLANK", "INVISIBLE", "VARIATION SELECTOR", "ZERO WIDTH", "NULL NOTEHEAD")
    missed = []
    for code in range(0x110000):
        name = unicodedata.name(chr(code), "")
        blank = any(word in name for word in nothing) and not any(word in name for word in drawn)
        if (blank or unicodedata.category(chr(code)) in UNSEEN) and not is_invisible_character(chr(code)):
            missed.append(f"U+{code:04X} {name}")
    assert missed == []


@given(
    st.text(
        alphabet=st.characters(categories=["L", "N", "P", "S"]).filter(
            lambda char: not is_invisible_character(char)
        ),
        max_size=50,
    )
)
def test_what_can_be_seen_is_left_alone_but_never_markup(text: str) -> None:
    from html import unescape

    assume(not has_lookalike_characters(text))
    assert unescape(reveal(text)) == text
    assert "<" not in reveal(text)


def test_no_folder_is_taken_for_what_a_card_fills_in() -> None:
    folders = [("folder", f"In /srv/0card-{name}0") for name in ("token", "key", "chosen", "lasting")]
    card = SimpleNamespace(
        key="of-this-card", offered_scopes=folders, can_approve_until_revoked=False, is_access_request=False
    )
    drawn = render_verdict_options(card, [])
    assert [label for _, label in folders if label not in drawn] == []
    assert 'id="scope-of-this-card"' in drawn
