"""The words that are read are those which a real Bash hands to programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.calls.shell_reader import ShellReader

pytestmark = pytest.mark.one_engine
BASH = shutil.which("bash") or ""
# Every program is "not found", so that Bash says which words it would have started it with.
HANDLER = "command_not_found_handle() { printf '%s\\0' \"$@\"; printf '\\1'; }; eval \"$0\""
ATOMS = st.sampled_from(
    [
        *("gitx", "pushx", "-C", "a b", "x", "é", "=", "A=1", "-", "--", "{a,b}", "{1..3}", "{", "}", ",",
        "[", "#", "$'a\\x41'"),
        *("'", '"', "\\", " ", "  ", "\t", "\n", "\\\n", ";", "&&", "||", "|", "(", ")", "!", "$",
        '$"b"', "<<<", "\u00a0"),
        *("<<E\ngitx\nE\n", "if", "then", "fi", "time", "'a b'", '"c d"', '"\\$"', "*"),
    ]
)  # fmt: skip
SCRIPTS = st.lists(ATOMS, max_size=9).map(lambda atoms: f"gitx {''.join(atoms)}")


def run_in_bash(script: str, folder: Path) -> list[list[str]] | None:
    """Return the words of each program that Bash would start; None where it refuses the script."""
    try:
        done = subprocess.run(
            [BASH, "--norc", "--noprofile", "-c", HANDLER, script],
            env={"PATH": "", "LC_ALL": "C.UTF-8"},
            cwd=folder,
            capture_output=True,
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return None
    if any(
        word in done.stderr for word in (b"syntax", b"unexpected", b"ambiguous", b"substitution", b"warning")
    ):
        return None
    return [call.decode("utf-8", "replace").split("\0")[:-1] for call in done.stdout.split(b"\1")[:-1]]


@pytest.mark.skipif(not BASH, reason="there is no Bash")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=SCRIPTS)
def test_bash_starts_no_program_with_other_words(script: str, tmp_path: Path) -> None:
    started = run_in_bash(script, tmp_path)
    reader = ShellReader("/")
    reader.record_script_commands(script)
    if started is None or reader.reading.unreadable:
        return
    read = [[word.text for word in one.words] for one in reader.reading.commands]
    for words in started:
        assert any(
            None in one
            or (
                len(one) == len(words)
                and all(mine in {None, his} for mine, his in zip(one, words, strict=True))
            )
            for one in read
        ), (words, read)


QUOTED = st.tuples(st.sampled_from(["git", "push", "--force", "a b", "$x", "`y`", "é;&|"]), st.integers(0, 4))


def quote_word(word: str, form: int) -> str:
    """Return a word as a shell text, in one of the forms in which it stays the same."""
    single = "'" + word.replace("'", "'\\''") + "'"
    if form == 0:
        return single
    if form == 1:
        return "".join(f"\\{char}" for char in word)
    if form == 2:
        return '"' + "".join(f"\\{char}" if char in '$`"\\' else char for char in word) + '"'
    if form == 3:
        return "$'" + "".join(f"\\U{ord(char):08x}" for char in word) + "'"
    return "".join(quote_word(char, place % 4) for place, char in enumerate(word))


@given(st.lists(QUOTED, min_size=1, max_size=5))
def test_quoting_never_changes_what_is_read(words: list[tuple[str, int]]) -> None:
    reader = ShellReader("/")
    reader.record_script_commands("git " + " ".join(quote_word(*word) for word in words))
    if not reader.reading.unreadable:  # a quoted blank behind a quote is refused by the grammar
        assert [[word.text for word in one.words] for one in reader.reading.commands] == [
            ["git", *(word for word, _ in words)]
        ]
    if all(form != 4 for _, form in words):
        assert reader.reading.unreadable == []


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("abg '\"\\\n;|&$(){}<>`!#=*~-EF\u00a0\U000f0000"), max_size=400))
def test_no_text_breaks_the_reader(text: str) -> None:
    reader = ShellReader("/")
    reader.record_script_commands(text)
    assert isinstance(reader.reading.commands, list)


@pytest.mark.parametrize("character", ["\u0100", "\u3000", "\U000f0000", "\U0010ffff"])
def test_characters_beyond_the_scanners_table_do_not_crash_it(character: str) -> None:
    reader = ShellReader("/")
    reader.record_script_commands(
        f"git {{{character}x; echo -{character} $${character}\ncat <<{character}\n${character}\n"
    )
    assert [word.text for word in reader.reading.commands[0].words] == ["git", f"{{{character}x"]


@pytest.mark.parametrize("word", ["é=1", "→=1", "x→=1", "𐍈=1", "x中=1"])
def test_a_word_whose_name_is_not_ascii_is_no_assignment(word: str) -> None:
    reader = ShellReader("/")
    reader.record_script_commands(f"{word} git push")
    assert [[one.text for one in command.words] for command in reader.reading.commands] == [
        [word, "git", "push"]
    ]


@pytest.mark.parametrize("word", ["\U000f0000", "'\U000f0000'", '"\U000f0000"', "$'\\U000f0000'", "\udc00"])
def test_no_character_of_a_text_becomes_a_special_one(word: str) -> None:
    reader = ShellReader("/")
    reader.record_script_commands(f"rm {word}")
    assert [one.text for one in reader.reading.commands[0].words] in (["rm", "\U000f0000"], ["rm", "?"])
