"""Rules as sentences: "Allow claude-code to run git status and git diff anywhere in /srv/shop"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from coordinator.policy.rules import tool_kinds
from coordinator.policy.rules.call_history import MARKED_RESULT, NEW_HOSTS, SAME_CALL
from coordinator.policy.rules.ready_made import BY_NAME
from coordinator.policy.rules.terms import (
    ANY_OPTION,
    IN_FOLDER,
    NO_OTHER_WORD,
    WITHOUT_SANDBOX,
    split_term_lines,
)
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, DecisionRule
from coordinator.sessions.agent_programs import AGENT_TITLES

MOST_NAMED = 6  # of one kind, before the rest is counted
MOST_AGENTS_NAMED = 3
_USES = {"reads": "read", "writes": "write", "deletes": "delete", "lists": "list"}
_KINDS = {
    "command": "run commands",
    "read": "read files",
    "write": "write files",
    "search": "search files",
    "fetch": "fetch web pages",
    "web-search": "search the web",
}


@dataclass(frozen=True, slots=True)
class SentencePart:
    """A piece of a sentence."""

    text: str
    kind: str = ""  # "" for plain text, "who" for a name, "code" for literal text


def build_rule_sentence_parts(
    rule: DecisionRule, agent_labels: Mapping[str, str] = MappingProxyType({})
) -> list[SentencePart]:
    """Return a rule as one sentence, in pieces. Agents without a label appear by their ids."""
    before, after = {
        ALLOW: ("Allow", "to"),
        DENY: ("Do not allow", "to"),
        ASK: ("Ask a person before", "may"),
    }.get(rule.verdict, ("Only record when", "wants to"))
    agents = [agent_labels.get(name, name) for name in list_rule_agent_labels(rule)]
    who = join_sentence_parts([SentencePart(name, "who") for name in agents], "or", MOST_AGENTS_NAMED)
    if rule.program and rule.agents is not None:
        who.append(SentencePart(f"in {AGENT_TITLES.get(rule.program, rule.program)}"))
    return [SentencePart(before), *who, SentencePart(after), *build_matched_call_parts(rule)]


def list_rule_agent_labels(rule: DecisionRule) -> list[str]:
    """Return the names of the agents to which a rule applies."""
    if rule.agents is None:
        return [AGENT_TITLES.get(rule.program, rule.program) or "every agent"]
    return list(rule.agents) or ["nobody"]


def build_matched_call_parts(rule: DecisionRule) -> list[SentencePart]:
    """Return the calls that a rule matches: programs, paths, hosts, a pattern, tools."""
    ready_made = BY_NAME.get(rule.ready_made)
    if ready_made is not None and ready_made.is_allowing and ready_made.has_same_terms_as_rule(rule):
        return [SentencePart(ready_made.sentence)]
    runs, touches, reaches = (split_term_lines(text) for text in (rule.runs, rule.touches, rule.reaches))
    folders = [line.removeprefix(IN_FOLDER).strip() for line in touches if line.startswith(IN_FOLDER)]
    excluded = [line[1:].strip() for line in (*touches, *reaches) if line.startswith("!")]
    paths = [line for line in touches if not line.startswith((IN_FOLDER, "!"))]
    hosts = [line for line in reaches if not line.startswith("!") and line != NEW_HOSTS]
    has_new_hosts = NEW_HOSTS in reaches
    actions: list[list[SentencePart]] = []
    commands = [
        " ".join(word for word in line.split() if word not in {NO_OTHER_WORD, ANY_OPTION})
        for line in runs
        if line != WITHOUT_SANDBOX
    ]
    if commands:
        actions.append(
            [
                SentencePart("run"),
                *join_sentence_parts(texts_as_code_parts(commands), "and" if rule.verdict == ALLOW else "or"),
            ]
        )
    if WITHOUT_SANDBOX in runs:
        actions.append([SentencePart("leave its sandbox")])
    is_file_rule = not commands and not rule.pattern and not hosts and not has_new_hosts
    if paths:
        actions.append(
            join_sentence_parts([SentencePart(describe_path_line(line), "code") for line in paths], "or")
        )
        actions[-1].insert(0, SentencePart("touch" if len(actions) == 1 else "and touch"))
    elif is_file_rule and not actions:
        actions.append(build_tool_sentence_parts(rule.tool))
    if hosts:
        actions.append([SentencePart("reach"), *join_sentence_parts(texts_as_code_parts(hosts), "or")])
    if has_new_hosts:
        actions.append(
            [
                SentencePart("or" if hosts else "reach"),
                SentencePart("hosts that nobody has approved in the project"),
            ]
        )
    if rule.pattern:
        if not actions:
            actions.append(build_tool_sentence_parts(rule.tool))
        actions.append([SentencePart("where its text fits a pattern")])
    elif commands or paths or hosts or has_new_hosts:
        actions += (
            []
            if rule.tool in {"*", "Bash", "kind:command"}
            else [[SentencePart("with"), *tool_names_as_sentence_parts(rule.tool)]]
        )
    return [part for action in actions for part in action] + build_rule_condition_parts(
        rule, folders, excluded
    )


def build_rule_condition_parts(
    rule: DecisionRule, folders: Sequence[str], excluded: Sequence[str]
) -> list[SentencePart]:
    """Return the conditions of a rule: folders, repetition, exceptions, and whether it ends the turn."""
    sentence: list[SentencePart] = []
    if folders:
        sentence += [SentencePart("anywhere in"), *join_sentence_parts(texts_as_code_parts(folders), "or")]
    if rule.repeats:
        sentence.append(SentencePart(describe_repetition(rule.repeats)))
    if excluded:
        sentence += [SentencePart("except"), *join_sentence_parts(texts_as_code_parts(excluded), "and")]
    if rule.stops_turn:
        sentence += [SentencePart(","), SentencePart("and end the turn")]
    return sentence


def describe_repetition(text: str) -> str:
    if text.startswith(MARKED_RESULT):
        return f"after a marked result{text.removeprefix(MARKED_RESULT)}"
    kind, _, rest = text.removeprefix("same ").partition(" ")
    return f"{rest} with the same input" if kind == SAME_CALL else f"after it met the same error {rest}"


def describe_path_line(line: str) -> str:
    first, _, rest = line.partition(" ")
    return f"{rest} ({', '.join(first.split('|'))})" if rest and set(first.split("|")) <= set(_USES) else line


def build_tool_sentence_parts(names: str) -> list[SentencePart]:
    """Return what the tools of a rule do ("run commands"), or their names."""
    kinds = [name.removeprefix(tool_kinds.PREFIX) for name in names.split("|")]
    if names == "*":
        return [SentencePart("use any tool")]
    if all(name.startswith(tool_kinds.PREFIX) for name in names.split("|")) and set(kinds) <= set(_KINDS):
        return [SentencePart(" and ".join(_KINDS[kind] for kind in kinds))]
    return [SentencePart("use"), *tool_names_as_sentence_parts(names)]


def tool_names_as_sentence_parts(names: str) -> list[SentencePart]:
    return join_sentence_parts(texts_as_code_parts(names.split("|")), "or")


def texts_as_code_parts(texts: Sequence[str]) -> list[SentencePart]:
    return [SentencePart(text, "code") for text in texts]


def join_sentence_parts(
    parts: Sequence[SentencePart], word: str, most: int = MOST_NAMED
) -> list[SentencePart]:
    """Return parts as a list in a sentence.

    Of more than `most` parts, the first are named and the others counted.
    """
    shown_parts = list(parts[:most])
    more = len(parts) - len(shown_parts)
    joined: list[SentencePart] = []
    for index, part in enumerate(shown_parts):
        if index:
            joined.append(SentencePart(word if index == len(shown_parts) - 1 and not more else ","))
        joined.append(part)
    return [*joined, *([SentencePart(f"{word} {more} more")] if more else [])]
