"""JSON with comments is edited in place: values, comments, ends of lines and indentation of others stay."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.client.connecting import jsonc
from coordinator.client.connecting.jsonc import UnreadableSettings

KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
BLANKS = st.sampled_from(["", " ", "\n", "\r\n\t", " // a word, {\n", "/* [ */", "\n  /* two\n lines */ "])


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """The value as somebody may have written it: blanks, comments and trailing commas anywhere."""

    def blank() -> str:
        return draw(BLANKS)

    def of(one: Any) -> str:
        if isinstance(one, dict):
            parts = [
                f"{blank()}{json.dumps(key)}{blank()}:{blank()}{of(item)}{blank()}"
                for key, item in one.items()
            ]
        elif isinstance(one, list):
            parts = [f"{blank()}{of(item)}{blank()}" for item in one]
        else:
            return json.dumps(one)
        comma = "," + blank() if parts and draw(st.booleans()) else ""
        inside = ",".join(parts) + comma if parts else blank()
        return f"{{{inside}}}" if isinstance(one, dict) else f"[{inside}]"

    return f"{blank()}{of(value)}{blank()}"


@st.composite
def settings_texts(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    value = draw(st.dictionaries(KEYS, VALUES, max_size=4))
    return value, draw(written(value))


cheap = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@cheap
@given(settings_texts())
def test_it_reads_what_was_written(given_text: tuple[dict[str, Any], str]) -> None:
    value, text = given_text
    assert jsonc.load_jsonc_value(text) == value


@cheap
@given(settings_texts(), VALUES)
def test_what_is_put_in_is_there_and_all_else_stays(
    given_text: tuple[dict[str, Any], str], more: Any
) -> None:
    value, text = given_text
    after = jsonc.set_jsonc_value(text, ["ours to add", "deep"], more)
    assert jsonc.load_jsonc_value(after) == {**value, "ours to add": {"deep": more}}
    assert jsonc.load_jsonc_value(jsonc.remove_jsonc_item(after, ["ours to add"])) == value


@cheap
@given(
    st.lists(VALUES, max_size=4).flatmap(lambda items: st.tuples(st.just(items), written({"a": items}))),
    VALUES,
)
def test_an_element_is_added_to_any_list_and_taken_out_again(
    given_text: tuple[list[Any], str], more: Any
) -> None:
    items, text = given_text
    after = jsonc.append_jsonc_element(text, ["a"], more)
    assert jsonc.load_jsonc_value(after) == {"a": [*items, more]}
    assert jsonc.load_jsonc_value(jsonc.remove_jsonc_item(after, ["a", len(items)])) == {"a": items}


@cheap
@given(
    st.lists(VALUES, min_size=1, max_size=4).flatmap(
        lambda x: st.tuples(st.just(x), written(x), st.integers(0, 3))
    )
)
def test_any_element_can_be_removed(given_text: tuple[list[Any], str, int]) -> None:
    items, text, at = given_text
    at %= len(items)
    assert jsonc.load_jsonc_value(jsonc.remove_jsonc_item(text, [at])) == items[:at] + items[at + 1 :]


def test_lines_comments_and_tabs_stay_as_they_are() -> None:
    text = '\ufeff{\r\n\t// mine\r\n\t"a": 1, // one\r\n\t"b": [1, 2,], /* two */\r\n}\r\n'
    after = jsonc.set_jsonc_value(text, ["hooks", "Stop"], [1])
    assert after == text.replace(
        "\r\n}", '\r\n\t"hooks": {\r\n\t\t"Stop": [\r\n\t\t\t1\r\n\t\t]\r\n\t},\r\n}'
    )
    assert jsonc.remove_jsonc_item(after, ["hooks"]) == text


def test_a_file_in_one_line_stays_in_one_line() -> None:
    assert jsonc.set_jsonc_value('{"a": 1}', ["b", "c"], [2]) == '{"a": 1, "b": {"c": [2]}}'
    assert jsonc.append_jsonc_element('{"a":[1]}', ["a"], 2) == '{"a":[1, 2]}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a": }',
        "{'a': 1}",
        '{"a": 1} x',
        '{"a" 1}',
        '{"a": 1 "b": 2}',
        "[1,,2]",
        "/* open",
        "{,}",
        "NaN",
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UnreadableSettings, match=r"line \d+, column \d+"):
        jsonc.parse_jsonc(text)


def test_endless_nesting_is_refused() -> None:
    with pytest.raises(UnreadableSettings, match="too deeply"):
        jsonc.parse_jsonc("[" * 100_000)


def test_of_two_members_of_one_name_the_last_counts() -> None:
    assert jsonc.set_jsonc_value('{"a": 1, "a": 2}', ["a"], 3) == '{"a": 1, "a": 3}'


def test_a_file_of_more_values_than_settings_have_is_refused_at_once() -> None:
    with pytest.raises(UnreadableSettings, match="more than 50,000 values"):
        jsonc.parse_jsonc("{" + ",".join(f'"k{number}":{{}}' for number in range(100_000)) + "}")
