"""A session's title out of what somebody wrote: Markdown and slash commands made readable, the first sentence of it.

Foreign text: only its beginning is read, and every pattern here is bounded, so that none can be made to take long.
"""

from __future__ import annotations

import re
import unicodedata

from coordinator.secrets.masking import MASK, mask_secrets_in_value, shorten_mask_digests
from coordinator.sessions.reports import UNRECORDED_PROMPT

LONGEST = 100  # characters of a title that is made of a text
READ_UP_TO = 4_000  # characters of a text: a secret that is cut off is not recognised as one
# A sentence that is shorter says too little ("Hi."): the next one belongs to it.
SHORTEST_SENTENCE = 12
LONGEST_SHORT = 8  # characters of an abbreviation with the text before it

# What agents put before or around a person's words.
_AGENT_MARKUP = re.compile(
    r"<(system-reminder|local-command-[a-z]{1,20}|command-message|command-contents|bash-std(?:out|err)|"
    r"ide_[a-z_]{1,30}|user-prompt-submit-hook|environment_context|user_instructions|task-notification)>"
    r".*?(?:</\1>|\Z)",
    re.DOTALL,
)
_CAVEATS = (
    "Caveat: The messages below were generated",
    "[Request interrupted by user",
    "This session is being continued from a previous conversation",
)
# A command alone says little of what a session is about: the first prompt says more, where one follows.
_BARE_COMMAND = re.compile(r"/[\w:.-]{1,100}")
_LOOSE_ENDS = " ,;:-\u2013"
# Letters and signs for which fonts draw nothing.
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"

_FENCE = re.compile(
    r"(?:^|\n)[ \t]{0,8}(?:```|~~~)[^\n]{0,200}\n?(.*?)(?:\n[ \t]{0,8}(?:```|~~~)|\Z)", re.DOTALL
)
_IMAGE_OR_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\([^()\n]{0,600}\)")
_REFERENCE = re.compile(r"\[([^\[\]\n]{1,300})\]\[[^\[\]\n]{0,100}\]")
_ADDRESS = re.compile(r"<((?:https?|mailto):[^<>\s]{1,600})>")
_TAG = re.compile(r"(?:(?<![\w`])<|</)([a-z][a-z0-9_-]{0,40})(?:\s[^<>\n]{0,200})?/?>")
_CLOSED = re.compile(r"</([a-z][a-z0-9_-]{0,40})>")
_NEVER_CLOSED = {"br", "hr", "img"}
_LINE_MARK = re.compile(r"^[ \t]{0,8}(?:#{1,6}\s+|>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,3}[.)]\s+)+")
_RULE = re.compile(r"^[\s=_*|:+-]{2,}$")
_BLOCK_END = re.compile(r"(?<=[^\s.:;,!?…])\n")
_TABLE_ROW = re.compile(r"^[ \t]{0,8}\|.*\|[ \t]*$", re.MULTILINE)
_STRONG = re.compile(r"(\*\*|~~)(?=\S)([^\n]{1,300}?\S|\S)\1")
_EMPHASIS = re.compile(r"(?<![\w*])([*_])(?=\S)([^*_\n]{1,300}?)(?<=\S)\1(?![\w*])")
_CODE = re.compile(r"(`{1,2})([^`\n]{1,400})\1")
_SENTENCE_ENDS = re.compile(r"[.!?…](?:[\"')\]]{0,2})(?=\s)|[\u3002\uff01\uff1f]")
_NO_END = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|no|nr|z\.B|bzw|d\.h)|\b[A-Z])\.$", re.IGNORECASE)


def make_title_from_text(text: str) -> str:
    """Return a text's first sentence, readable, masked and no longer than LONGEST; empty where it says nothing."""
    text = mask_secrets_in_value(text[:READ_UP_TO])
    command = find_text_inside_tag(text, "command-name")
    if command is not None:
        return shorten_title_line(
            f"{command} {strip_markdown(find_text_inside_tag(text, 'command-args') or '')}"
        )
    shell = find_text_inside_tag(text, "bash-input")
    if shell is not None:
        return shorten_title_line(f"! {shell}")
    text = _AGENT_MARKUP.sub(" ", text).strip()
    if text.startswith((*_CAVEATS, UNRECORDED_PROMPT)):
        return ""
    code = next((match[1] for match in _FENCE.finditer(text) if match[1].strip()), "")
    sentence = extract_first_sentence(strip_markdown(_FENCE.sub("\n", text)))
    return shorten_title_line(sentence or code.strip().partition("\n")[0])


def is_meaningful_title(title: str) -> bool:
    """Say whether a title says what a session is about; `/review` alone does not."""
    return bool(title) and not _BARE_COMMAND.fullmatch(title)


def shorten_title_line(text: str, longest: int = LONGEST) -> str:
    """Return a text on one line, without what an eye misses, cut between words and never within a mask."""
    line = " ".join(
        "".join(char for char in shorten_mask_digests(text) if is_character_allowed_in_title(char)).split()
    )
    if len(line) <= longest:
        return line
    cut = longest - 1
    for mask in MASK.finditer(line):
        if mask.start() < cut < mask.end():
            return f"{line[: mask.start()].rstrip()}…" if mask.start() else mask.group()
    blank = line.rfind(" ", longest // 2, cut + 1)
    return line[: blank if blank > 0 else cut].rstrip(_LOOSE_ENDS) + "…"


def preview_markdown(text: str, longest: int = LONGEST) -> str:
    """Return the beginning of Markdown as one masked line without its marks, for lists and summaries.

    A dot is put between headings, items and paragraphs that end without punctuation. Tables are left out where there is
    anything else: in one line they cannot be read.
    """
    masked = _FENCE.sub(r"\n\1\n", str(mask_secrets_in_value(text[:READ_UP_TO])))
    without_tables = _TABLE_ROW.sub("", masked)
    blocks = strip_markdown(without_tables if without_tables.strip() else masked)
    return shorten_title_line(_BLOCK_END.sub(" · ", blocks), longest)


def find_text_inside_tag(text: str, tag: str) -> str | None:
    """Return the content of the first `<tag>…</tag>`; None without one."""
    _, opened, rest = text.partition(f"<{tag}>")
    inside, closed, _ = rest.partition(f"</{tag}>")
    return inside.strip() if opened and closed else None


def is_character_allowed_in_title(char: str) -> bool:
    """Say whether a character belongs into a title: blanks do, and the joiners of scripts and emoji."""
    if char.isspace() or char in "\u200c\u200d":
        return True
    return char not in _BLANK and unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn"}


def strip_markdown(text: str) -> str:
    """Return Markdown without its marks, a paragraph, heading or item of a list on each line."""
    text = _ADDRESS.sub(r"\1", _REFERENCE.sub(r"\1", _IMAGE_OR_LINK.sub(r"\1", text)))
    blocks: list[str] = []
    goes_on = False
    tags = {*_CLOSED.findall(text), *_NEVER_CLOSED}  # `<name>` alone is a placeholder to be filled in
    for drawn in _TAG.sub(lambda tag: " " if tag[1] in tags else tag[0], text).splitlines():
        bare = _LINE_MARK.sub("", drawn)
        line = "" if _RULE.match(drawn) else strip_inline_markdown(bare)
        if line and goes_on and bare == drawn:
            blocks[-1] += f" {line}"
        elif line:
            blocks.append(line)
        goes_on = bool(line) and not drawn.lstrip().startswith("#")
    return "\n".join(blocks)


def strip_inline_markdown(line: str) -> str:
    for pattern in (_STRONG, _STRONG, _EMPHASIS, _CODE):
        line = pattern.sub(r"\2", line)
    return " ".join(line.split())


def extract_first_sentence(text: str) -> str:
    """Return the first line of a text up to its first sentence's end; a line that announces the next has it, too."""
    first, _, rest = text.partition("\n")
    if first.endswith(":") or len(first) < SHORTEST_SENTENCE:
        first = f"{first} {rest.partition(chr(10))[0]}".strip()
    for end in _SENTENCE_ENDS.finditer(first):
        if end.end() >= SHORTEST_SENTENCE and not _NO_END.search(
            first[end.end() - LONGEST_SHORT : end.end()]
        ):
            first = first[: end.end()]
            break
    return first.removesuffix(".").removesuffix("\u3002").removesuffix(":")
