"""Detection of masked text that would be decoded or run: no secret that a person may take on trust."""

from __future__ import annotations

from typing import Any

import re2

from coordinator.secrets.masking import MASK, find_masks_in_value

# What makes something else of a text.
_DECODES = re2.compile(
    r"(?i)\bbase(?:16|32|58|64|nc)\b|\bb(?:16|32|64|85)(?:url)?_?dec|decodebytes|\batob\b|a2b_|unhexlify|fromhex|"
    r"frombase64|decode64|unpack\b|buffer\.from|\bxxd\b|\buu(?:de|en)code\b|\bopenssl\b|\bgpg\b|certutil|"
    r"\bg?(?:un)?zip\b|\bzcat\b|\bxz\b|\bbz(?:ip2|cat)\b|\brev\b|\btr\s|codecs|-enc(?:odedcommand)?\b|\bprintf\b|"
    r"\becho\s+-[a-z]*e|\$'"
)
# What runs a text: an interpreter that reads its program from elsewhere or is given one, and words that run others.
_SHELL = (
    r"(?:(?:ba|z|da|k|c|tc|fi)?sh|pwsh|powershell|python[0-9.]*|perl|ruby|node|deno|bun|php|lua|tclsh|awk)"
)
_RUNS = re2.compile(
    rf"(?i)\|[^|;&\n]{{0,60}}\b{_SHELL}\b|\b{_SHELL}\s+(?:-[a-z]+\s+){{0,4}}(?:-[a-z]*[ce]\b|<|/dev/stdin|/proc/)|"
    r"\beval\b|\bexec\b|\bsource\b|(?:^|[;&|]\s*)\.\s+\S|invoke-expression|\biex\b|\bxargs\b|ld_preload|"
    r"\bnew\s+function\b|\bsystem\s*\(|subprocess|child_process"
)
_MODULE = re2.compile(r"\bpython[0-9.]*\s+-m\s")  # it runs a module by its name, and no text
_ASSIGNED = re2.compile(r"([A-Za-z_][A-Za-z0-9_]*)=[\"']?MASKED")
MOST_NAMES = 20


def can_value_run_masked_secret(shown_value: Any) -> bool:
    """Say whether a masked value may be decoded or run. Where that is unknown, the answer is yes."""
    if not find_masks_in_value(shown_value):
        return False
    return any(decodes_or_runs_mask(text) for text in collect_nested_texts(shown_value))


def decodes_or_runs_mask(text: str) -> bool:
    plain = _MODULE.sub("module ", MASK.sub("MASKED", text))  # a mask's own words say nothing
    if _DECODES.search(plain) or _RUNS.search(plain):
        return True
    names = {match.group(1) for match in _ASSIGNED.finditer(plain)}
    return len(names) > MOST_NAMES or any(expands_hidden_variable(name, plain) for name in names)


def expands_hidden_variable(name: str, text: str) -> bool:
    """Say whether a variable with a hidden value is cut, replaced or indirect, or is used as a command."""
    used = rf"\$\{{!|\$\{{{name}[#%/:^,@\[]|(?:^|[;&|(`\n]|\$\()\s*[\"']?\$\{{?{name}\b"
    return re2.search(used, text) is not None


def collect_nested_texts(value: Any) -> list[str]:
    nested_texts, waiting = [], [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, str):
            nested_texts.append(current)
        elif isinstance(current, dict):
            waiting += [*current, *current.values()]
        elif isinstance(current, list):
            waiting += current
            nested_texts.append(
                " ".join(part for part in current if isinstance(part, str))
            )  # a command's words
    return nested_texts
