"""Checks for doubtful rules: allow patterns that fit more than they seem to, and rules that can never decide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import re2

from coordinator.calls.paths import is_home_or_system_folder
from coordinator.calls.tools import TOOLS
from coordinator.errors import UnprocessableRequest
from coordinator.mcp.servers.names import PREFIX
from coordinator.policy.rules import tool_kinds
from coordinator.policy.rules.tool_rules import (
    ALLOW,
    ASK,
    DENY,
    OBSERVE,
    DecisionRule,
    compile_rule_pattern,
    matches_tool_name,
    tool_may_run_commands,
)

# What may follow a command that a pattern was written for, and what it does there.
ADDITIONS = (
    (" > x", "a redirection into a file"),
    ("; rm x", "a second command"),
    (" && rm x", "a second command"),
    (" | sh", "a pipe into another program"),
    (" $(rm x)", "a substitution, which runs a command"),
    (" `rm x`", "a substitution, which runs a command"),
)
MOST_SAMPLE_STEPS = 2_000  # parts of a pattern from which a sample is made
_LITERAL_CATEGORIES = {
    "CATEGORY_DIGIT": "1",
    "CATEGORY_SPACE": " ",
    "CATEGORY_WORD": "a",
    "CATEGORY_NOT_SPACE": "a",
}
_PLAIN_TOKEN = re.compile(r"[A-Za-z0-9_.:/=-]+")
_GROUP_TOKEN = re.compile(r"\((?:\?:)?([A-Za-z0-9_:/=-]+(?:\|[A-Za-z0-9_:/=-]+)*)\)")
_FILE_PATTERN = re.compile(r"\(\^\|/\)((?:[A-Za-z0-9_-]|\\\.)+)(\$?)")


def warnings_by_rule_number(rules: Sequence[DecisionRule]) -> dict[int, list[str]]:
    """Return what is doubtful about each rule, by its number; rules that are off are not looked at."""
    warnings: dict[int, list[str]] = {}
    for index, rule in enumerate(rules):
        if rule.is_off:
            continue
        rule_warnings = [
            warning
            for warning in (
                wide_pattern_warning_or_empty(rule),
                wide_folder_warning_or_empty(rule),
                never_matching_warning_or_empty(rule),
                shadowed_rule_warning_or_empty(rule, rules[:index]),
            )
            if warning
        ]
        if rule_warnings:
            warnings[rule.number] = rule_warnings
    return warnings


def wide_pattern_warning_or_empty(rule: DecisionRule) -> str:
    """Return what a pattern that allows commands also allows after them; "" where it is nothing."""
    if (
        rule.verdict != ALLOW
        or not rule.pattern
        or rule.has_terms
        or not any(map(tool_may_run_commands, list_tools_named_by_rule(rule)))
    ):
        return ""
    try:
        expression = compile_rule_pattern(rule.pattern, True)
    except re2.error:
        return ""
    sample = pattern_sample_text_or_none(rule.pattern)
    if sample is None or not expression.fullmatch(sample):
        return ""
    additions = dict.fromkeys(what for text, what in ADDITIONS if expression.fullmatch(sample + text))
    if not additions:
        return ""
    return f"Behind the command, the pattern also fits {', '.join(additions)}. Say what the command runs instead."


def wide_folder_warning_or_empty(rule: DecisionRule) -> str:
    """Return which folder of a rule that allows holds far more than a project; "" where none does."""
    if rule.verdict != ALLOW:
        return ""
    try:
        parsed = rule.parsed_terms
    except UnprocessableRequest:
        return ""
    named = [*parsed.folders, *(term.pattern for term in parsed.paths if not term.excludes)]
    wide = next(
        (
            path
            for path in named
            if path in {"*", "**"} or is_home_or_system_folder(base_folder_of_path_pattern(path))
        ),
        None,
    )
    if wide is None:
        return ""
    return f"“{wide}” holds more than a project: the files of every project there, and of the system or its users."


def base_folder_of_path_pattern(path: str) -> str:
    """Return a path without the wildcards at its end: `/home/*` is everything below `/home`."""
    return re.sub(r"(/\*+)+$", "", path) or "/" if path.startswith(("/", "~")) else "."


def never_matching_warning_or_empty(rule: DecisionRule) -> str:
    """Return why a rule can never match; "" where it can."""
    if rule.agents == ():
        return "It is for no agent, so it never matches."
    lets_go_on = rule.verdict in {ALLOW, OBSERVE}
    tools = list_tools_named_by_rule(rule)
    if lets_go_on and rule.has_terms:
        known_tools = [tool for tool in tools if tool in TOOLS]
        if tools and not known_tools:
            return "Signalbox does not know what these tools do, so a rule in these terms never allows them."
        if known_tools and all(TOOLS[tool].is_command for tool in known_tools) and not rule.runs.strip():
            return "It names no program under “Runs”, so it covers no command."
    if lets_go_on and rule.pattern and has_impossible_character_class(rule.pattern):
        return "No text fits the pattern, so it never matches."
    return ""


def has_impossible_character_class(pattern: str) -> bool:
    """Say whether a pattern holds a character class that matches nothing at all."""
    return r"[^\s\S]" in pattern or r"[^\S\s]" in pattern or r"[^\w\W]" in pattern


def shadowed_rule_warning_or_empty(rule: DecisionRule, earlier: Sequence[DecisionRule]) -> str:
    """Return which earlier rule decides every call that a rule could; "" where none does."""
    for other in earlier:
        if not other.is_off and is_earlier_rule_shadowing_rule(other, rule):
            return f"Rule {other.number} decides every call that this one could, so this one never does."
    return ""


def is_earlier_rule_shadowing_rule(other: DecisionRule, rule: DecisionRule) -> bool:
    """Say whether a rule matches whatever another one matches, as far as that is certain."""
    if other.agents is not None and (rule.agents is None or not set(rule.agents) <= set(other.agents)):
        return False
    if other.program not in {"", rule.program} or not has_all_tool_names_of_rule(other, rule):
        return False
    is_same_kind = (other.verdict in {DENY, ASK}) == (rule.verdict in {DENY, ASK})
    if other.verdict == ALLOW and rule.verdict == OBSERVE:
        is_same_kind = False  # what observes looks anywhere in a text that what allows must fit as a whole
    names = ("pattern", "runs", "touches", "reaches", "matches_unreadable", "repeats")
    if is_same_kind and all(getattr(other, name) == getattr(rule, name) for name in names):
        return True
    # What lets a call go on without a pattern still leaves out calls that lift a guard of their agent.
    return not other.is_limited_to_some_calls and other.verdict in {DENY, ASK}


def has_all_tool_names_of_rule(other: DecisionRule, rule: DecisionRule) -> bool:
    """Say whether a rule names every tool that another one names, patterns of names among them."""
    if other.tool.strip() == tool_kinds.EVERY_TOOL:
        return other.verdict in {DENY, ASK} or rule.tool.strip() == tool_kinds.EVERY_TOOL
    rule_names = tool_kinds.split_rule_tool_names(rule.tool)
    other_names = tool_kinds.split_rule_tool_names(other.tool)
    return all(
        name in other_names
        or (
            not set(name) & set("*?[")
            and all(matches_tool_name(other.tool, tool) for tool in tool_kinds.expand_tool_kinds(name))
        )
        for name in rule_names
    )


def list_tools_named_by_rule(rule: DecisionRule) -> list[str]:
    """Return the known tools that a rule names, and the names of tools that nobody knows."""
    known_tools = [tool for tool in TOOLS if matches_tool_name(rule.tool, tool)]
    names = tool_kinds.expand_tool_kinds(rule.tool)
    return known_tools or [name for name in names if name.startswith(PREFIX) or not set(name) & set("*?[")]


# --- a text that a pattern fits ---------------------------------------------------------------------------


def pattern_sample_text_or_none(pattern: str) -> str | None:
    """Return a short text that a pattern fits; None for a pattern of which none can be made."""
    try:
        parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    except (re.error, RecursionError, OverflowError):
        return None
    budget = [MOST_SAMPLE_STEPS]
    try:
        return "".join(iterate_sample_text_pieces(parsed, budget))
    except (ValueError, RecursionError):
        return None


def iterate_sample_text_pieces(parts: Any, budget: list[int]) -> Iterator[str]:
    """Yield a text for each part of a parsed pattern: one repetition where there may be one, the first branch."""
    for kind, value in parts:
        budget[0] -= 1
        if budget[0] < 0:
            raise ValueError(kind)
        name = str(kind)
        if name == "LITERAL":
            yield chr(value)
        elif name == "NOT_LITERAL":
            yield "a" if value != ord("a") else "b"
        elif name == "ANY":
            yield "a"
        elif name == "IN":
            yield require_character_of_regex_class(value)
        elif name in {"MAX_REPEAT", "MIN_REPEAT"}:
            least, _, repeated = value
            for _time in range(min(max(least, 1), 50)):
                yield from iterate_sample_text_pieces(repeated, budget)
        elif name == "SUBPATTERN":
            yield from iterate_sample_text_pieces(value[-1], budget)
        elif name == "BRANCH":
            yield from iterate_sample_text_pieces(value[1][0], budget)
        elif name != "AT":
            raise ValueError(name)


def require_character_of_regex_class(items: Any) -> str:
    """Return a character of a class; letters before others."""
    kinds = [str(kind) for kind, _ in items]
    if "NEGATE" in kinds:
        shut_out = {value for kind, value in items if str(kind) == "LITERAL"}
        return next(char for char in "ab1 -" if ord(char) not in shut_out)
    for kind, value in items:
        if str(kind) == "LITERAL":
            return chr(value)
        if str(kind) == "RANGE":
            return chr(value[0])
        if str(kind) == "CATEGORY" and str(value) in _LITERAL_CATEGORIES:
            return _LITERAL_CATEGORIES[str(value)]
    raise ValueError(kinds)


# --- the same in terms ------------------------------------------------------------------------------------


def rule_in_terms_or_none(rule: DecisionRule) -> DecisionRule | None:
    """Return a rule that denies or asks, with a plain pattern said in terms; None where that cannot be done.

    Patterns of words of commands (`git (push|tag)`, `rm -rf|npm publish`) and of names of files (`(^|/)\\.env`) can.
    """
    if rule.verdict not in {DENY, ASK} or not rule.pattern or rule.has_terms:
        return None
    tools = list_tools_named_by_rule(rule)
    changed = None
    if tools and all(tool in TOOLS and TOOLS[tool].is_command for tool in tools):
        lines = [
            regex_command_term_or_empty(part) for part in split_top_level_regex_alternatives(rule.pattern)
        ]
        changed = replace(rule, pattern="", runs="\n".join(lines)) if all(lines) else None
    elif tools and all(tool in TOOLS and TOOLS[tool].use for tool in tools):
        file_match = _FILE_PATTERN.fullmatch(rule.pattern)
        if file_match is not None:
            name = file_match[1].replace("\\.", ".")
            changed = replace(rule, pattern="", touches=name if file_match[2] else f"{name}*")
    try:
        return changed if changed is not None and changed.parsed_terms else None
    except UnprocessableRequest:
        return None


def split_top_level_regex_alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a pattern, without those within brackets."""
    parts, depth = [""], 0
    for char in pattern:
        depth += (char == "(") - (char == ")")
        if char == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def regex_command_term_or_empty(part: str) -> str:
    """Return an alternative as a line of programs, words and options; "" where it is more than that."""
    words: list[str] = []
    for piece in part.removeprefix("^").replace(r"\b", "").replace(r"\s+", " ").replace(" +", " ").split():
        plain = piece.removeprefix(".*") if words else piece
        if not plain:
            continue
        group = _GROUP_TOKEN.fullmatch(plain)
        text = group[1] if group is not None else plain if _PLAIN_TOKEN.fullmatch(plain) else ""
        if not text or (text.startswith("-") and not words):
            return ""
        words += split_combined_short_options(text)
    return " ".join(words)


def split_combined_short_options(text: str) -> list[str]:
    """Return `-rf` as `-r` and `-f`: in either order, and in words of their own."""
    if re.fullmatch(r"-[A-Za-z]{2,3}", text):
        return [f"-{letter}" for letter in text[1:]]
    return [text]
