"""The output of a program as a terminal shows it: colours, links, and the last state of a progress line.

Supported are carriage return and backspace, cursor movement, erasing, colours and styles (SGR), and links
(OSC 8). Other control sequences are dropped. The work is bounded by the length of the text: lines end at
MAX_COLUMNS, cursor movement fills at most MAX_FILLED_CELLS, and a sequence has at most a few thousand
characters.

Colours become names of classes, because pages allow no inline styles. Of 256 or RGB colours, the nearest of
the sixteen is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

MAX_CHARACTERS = 400_000  # rendered of a text, counted from its end, which has the last state
MAX_COLUMNS = 2_000
MAX_FILLED_CELLS = 200_000
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
STYLES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
STYLES_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("inverse",), 29: ("strike",)}
# Codes that change what a terminal shows. A text without them is shown unchanged.
SHOWS_CODES = re.compile(r"[\x1b\x9b\b]|\r(?!\n|\Z)")
_TOKENS = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|(?:\x1b\[|\x9b)(?P<parameters>[0-9:;<=>?]{0,200})[ -/]{0,8}(?P<final>[@-~])"
    r"|\x1b\]8;[^;\x00-\x1f]{0,200};(?P<link>[^\x00-\x1f]{0,2000})(?:\x07|\x1b\\)"
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4000}(?:\x07|\x1b\\)"
    r"|\x1b[ -/]{0,8}[0-~]"
    r"|(?P<control>[\s\S])"
)


@dataclass(frozen=True, slots=True)
class TerminalStyle:
    """The appearance of characters: names of colours and styles, and the address of a link."""

    foreground: str = ""
    background: str = ""
    styles: frozenset[str] = frozenset()
    link: str = ""

    @property
    def classes(self) -> str:
        names = [f"term-{name}" for name in sorted(self.styles)]
        # On a coloured background the text keeps the page's colour: some pairs of colours are unreadable.
        if self.background:
            names.append(f"term-on-{self.background}")
        elif self.foreground:
            names.append(f"term-{self.foreground}")
        return " ".join(names)


PLAIN = TerminalStyle()
Cell = tuple[str, TerminalStyle]


@dataclass(frozen=True, slots=True)
class TerminalSpan:
    """Characters of one line with the same style, or `"\\n"` as the break between two lines."""

    text: str
    classes: str = ""
    link: str = ""


@dataclass(slots=True)
class TerminalScreen:
    """The lines that were written, and the position of the cursor."""

    lines: list[list[Cell]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    style: TerminalStyle = PLAIN
    is_full: bool = False  # some of the written text is missing
    cells_to_fill: int = MAX_FILLED_CELLS

    def write_text(self, text: str) -> None:
        line = self.lines[self.row]
        columns_left = max(0, MAX_COLUMNS - self.column)
        if len(text) > columns_left:
            self.is_full = True
            text = text[:columns_left]
        if (missing := self.column - len(line)) > 0:
            filled = min(missing, self.cells_to_fill)
            line.extend([(" ", PLAIN)] * filled)
            self.cells_to_fill -= filled
            self.column -= missing - filled
        line[self.column : self.column + len(text)] = [(character, self.style) for character in text]
        self.column += len(text)

    def execute_control_character(self, control: str) -> None:
        if control == "\n":
            self.row, self.column = self.row + 1, 0
            if self.row == len(self.lines):
                self.lines.append([])
        elif control == "\r":
            self.column = 0
        elif control == "\b":
            self.column = max(0, self.column - 1)
        elif control == "\t":
            self.write_text(" " * (8 - self.column % 8))

    def execute_escape_sequence(self, final: str, parameters: str) -> None:
        if parameters[:1] in ("?", "<", "=", ">"):
            return  # modes, which have no visible effect
        numbers = [int(number[:5]) if number.isdecimal() else 0 for number in re.split("[;:]", parameters)]
        count = max(1, numbers[0])
        if final == "m":
            self.style = apply_style_codes(self.style, numbers)
        elif final == "A":
            self.row = max(0, self.row - count)
        elif final == "B":
            self.row = min(len(self.lines) - 1, self.row + count)
        elif final == "C":
            self.column = min(MAX_COLUMNS, self.column + count)
        elif final == "D":
            self.column = max(0, self.column - count)
        elif final == "E":
            self.row, self.column = min(len(self.lines) - 1, self.row + count), 0
        elif final == "F":
            self.row, self.column = max(0, self.row - count), 0
        elif final == "G":
            self.column = min(MAX_COLUMNS, count - 1)
        elif final in "Hf":
            self.row = min(len(self.lines), count) - 1
            self.column = min(MAX_COLUMNS, max(1, numbers[1] if len(numbers) > 1 else 1) - 1)
        elif final == "K":
            self.erase_in_line(numbers[0])
        elif final == "J":
            self.erase_screen(numbers[0])

    def erase_in_line(self, mode: int) -> None:
        line = self.lines[self.row]
        if mode == 0:
            del line[self.column :]
        elif mode == 1:
            line[: self.column] = [(" ", PLAIN)] * min(self.column, len(line))
        elif mode == 2:
            line.clear()

    def erase_screen(self, mode: int) -> None:
        if mode == 0:
            self.erase_in_line(0)
            del self.lines[self.row + 1 :]
        elif mode in (2, 3):
            self.lines[:] = [[]]
            self.row = 0


def has_terminal_codes(text: str) -> bool:
    """Return whether a terminal shows the text differently from its plain characters."""
    return SHOWS_CODES.search(text) is not None


def render_text_to_terminal_screen(text: str) -> TerminalScreen:
    """Return the screen after the text was written.

    Of a longer text, only the last MAX_CHARACTERS are written.
    """
    screen = TerminalScreen(is_full=len(text) > MAX_CHARACTERS)
    text = text[-MAX_CHARACTERS:]
    for token in _TOKENS.finditer(text.replace("\r\n", "\n")):
        kind = token.lastgroup
        if kind == "text":
            screen.write_text(token["text"])
        elif kind == "final":
            screen.execute_escape_sequence(token["final"], token["parameters"])
        elif kind == "link":
            screen.style = replace(screen.style, link=web_address_or_empty(token["link"]))
        elif kind == "control":
            screen.execute_control_character(token["control"])
    return screen


def web_address_or_empty(address: str) -> str:
    """Return an http or https address, or "" for any other."""
    is_web = address.startswith(("https://", "http://")) and not any(map(str.isspace, address))
    return address if is_web else ""


def apply_style_codes(style: TerminalStyle, codes: list[int]) -> TerminalStyle:
    remaining = iter(codes)
    for code in remaining:
        if code == 0:
            style = replace(PLAIN, link=style.link)
        elif code in STYLES:
            style = replace(style, styles=style.styles | {STYLES[code]})
        elif code in STYLES_OFF:
            style = replace(style, styles=style.styles - set(STYLES_OFF[code]))
        elif code == 39:
            style = replace(style, foreground="")
        elif code == 49:
            style = replace(style, background="")
        elif code == 38:
            style = replace(style, foreground=nearest_colour_of_sgr_shade(remaining))
        elif code == 48:
            style = replace(style, background=nearest_colour_of_sgr_shade(remaining))
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style = replace(style, foreground=colour_name_of_foreground_code(code))
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style = replace(style, background=colour_name_of_foreground_code(code - 10))
    return style


def colour_name_of_foreground_code(code: int) -> str:
    return COLOURS[code - 30] if code < 90 else f"bright-{COLOURS[code - 90]}"


def nearest_colour_of_sgr_shade(codes: Iterator[int]) -> str:
    """Return the nearest of the sixteen colours to a colour of SGR: `5;N` of 256, or `2;R;G;B`."""
    kind = next(codes, 0)
    if kind == 2:
        red, green, blue = (min(next(codes, 0), 255) for _ in range(3))
        return nearest_colour(red, green, blue)
    number = min(next(codes, 0), 255) if kind == 5 else 7
    if number < 16:
        return colour_name_of_foreground_code(30 + number if number < 8 else 82 + number)
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return nearest_colour(grey, grey, grey)
    level = (0, 95, 135, 175, 215, 255)
    number -= 16
    return nearest_colour(level[number // 36], level[number // 6 % 6], level[number % 6])


def nearest_colour(red: int, green: int, blue: int) -> str:
    """Return the colour whose red, green and blue parts are those above the middle of this colour's range."""
    largest, least = max(red, green, blue), min(red, green, blue)
    if largest - least < 32:
        return ("black", "bright-black", "white", "bright-white")[min(largest // 64, 3)]
    middle = (largest + least) / 2
    number = (red > middle) + 2 * (green > middle) + 4 * (blue > middle)
    return f"bright-{COLOURS[number]}" if largest > 200 else COLOURS[number]


def list_terminal_spans(lines: list[list[Cell]]) -> list[TerminalSpan]:
    """Return the lines as spans of characters with the same style."""
    spans: list[TerminalSpan] = []
    for number, line in enumerate(lines):
        if number:
            spans.append(TerminalSpan("\n"))
        for style, cells in groupby(line, key=lambda cell: cell[1]):
            spans.append(TerminalSpan("".join(cell[0] for cell in cells), style.classes, style.link))
    return spans
