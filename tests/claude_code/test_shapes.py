"""Patterns of calls fit those that were made, and nothing that a shell would take for more."""

from __future__ import annotations

import pytest
import re2

from coordinator.policy.rules.tool_rules import ALLOW, DecisionRule, validate_tool_rule
from coordinator.policy.suggestions.history import RecordedCall
from coordinator.policy.suggestions.search import CallGroup
from coordinator.policy.suggestions.shapes import (
    CallShape,
    CommandPart,
    build_shape_pattern,
    classify_call_shape,
    describe_shape_pattern,
)

EVIL = (
    "; rm -rf x", " && rm x", " | sh", " $(id)", " `id`", "\nrm x", " > x", " --output=/etc/x", " ../x", " .env",
    " ~/.ssh", " *", " & rm x", " 2>&1; x", " <(x)", " \\", " {a,b}", " /etc/passwd", " a/../../etc", " -exec",
    ' "$(id)"', " !x",
)  # fmt: skip


def group(*commands: str) -> CallShape:
    """Return the shape that commands have in common; they must have one."""
    together, keys = CallGroup(), set()
    for command in commands:
        shape = classify_call_shape("command", command)
        keys.add(shape.key)
        together.add_call_to_group(RecordedCall(1, "s", "Bash", command, "command", "", 0), shape)
    (key,) = keys
    return CallShape(key, together.parts)


@pytest.mark.parametrize(
    "commands",
    [
        ["git status"],
        ["git log --oneline -5", "git log -20 -- cart/totals.py"],
        [
            "cd /srv/work/shop && pytest -x tests/a.py 2>&1 | tail -20",
            "cd /srv/work/shop/api && pytest -q | tail -5",
        ],
        ['grep -rn "def total" cart', "grep -n 'x;y' cart/a.py"],
        ["python -m pytest -q tests", "python -m pytest"],
        ["python manage.py migrate --check"],
        ["./scripts/check.sh --all"],
        ["npm run build", "npm run build --silent"],
        ["cat tests/.hidden", "cat ./x"],
        ["ls -la /tmp"],
    ],
)
def test_a_pattern_fits_its_own_calls_and_no_more_than_plain_words(commands: list[str]) -> None:
    pattern = build_shape_pattern(group(*commands))
    assert pattern is not None
    rule = DecisionRule(1, "Bash", ALLOW, pattern)
    validate_tool_rule(rule)
    for command in commands:
        assert rule.matches_call("Bash", command, None), pattern
        let_through = [evil for evil in EVIL if rule.matches_call("Bash", command + evil, None)]
        assert let_through == [], pattern


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build", "sudo ls", "git push origin x", "git -c core.pager=x log", "curl https://x.org",
        "python -c 'x'", "python3 -m pip install x", "find . -delete", "sh x.sh", "xargs rm", "ls $(id)",
        "ls > x", "FOO=1 make",
        "a; rm x", "ls &", "uv run python x", "npm install x", "kubectl get pods", "echo `x`", "ls\nrm x",
        "", " ", "&& x", "/bin/rm x", "sed -i s/a/b/ x", "ssh host ls", "~/x", "git", "docker run x", "node x.js",
    ],
)  # fmt: skip
def test_what_may_do_anything_has_no_shape(command: str) -> None:
    shape = classify_call_shape("command", command)
    assert shape.key == "" or (shape.key, shape.parts) == ("command git", [CommandPart()])


def test_commands_that_are_not_known_to_read_take_only_the_words_that_were_seen() -> None:
    pattern = build_shape_pattern(group("make test", "make test FAST=1"))
    rule = DecisionRule(1, "Bash", ALLOW, pattern or "")
    assert rule.matches_call("Bash", "make test FAST=2", None)
    assert not rule.matches_call("Bash", "make test deploy", None)


def test_too_varied_commands_have_no_pattern() -> None:
    commands = [
        f"deploy.py --only={word * 3}" for word in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    ]
    assert build_shape_pattern(group(*[f"./{one}" for one in commands])) is None


@pytest.mark.parametrize(
    ("field", "about", "fits", "not_fits"),
    [
        ("file_path", "/srv/work/shop/a.py", ["/srv/work/shop/b/c.py"],
         ["/srv/work/shop/.env", "/srv/work/shop/../x", "/srv/work/other", "/srv/work/shop/a/../../x", "/srv"]),
        ("file_path", "src/a.py", ["b.py", "src/b/c"], ["../x", ".env", "/etc/x", "src/../x", "~/x", "a\\..\\x"]),
        ("url", "https://docs.example.org/a", ["https://docs.example.org", "https://docs.example.org/b?c"],
         ["https://docs.example.org.evil.org/", "https://docs.example.org@evil.org/", "http://docs.example.org/a"]),
    ],
)  # fmt: skip
def test_paths_and_addresses_keep_to_their_place(field: str, about: str, fits: list, not_fits: list) -> None:
    pattern = build_shape_pattern(classify_call_shape(field, about))
    assert pattern
    for text in [about, *fits]:
        assert re2.fullmatch(pattern, text), text
    for text in not_fits:
        assert not re2.fullmatch(pattern, text), text


@pytest.mark.parametrize(
    "about",
    [
        "/etc/passwd", "/srv/../etc/x", ".env", "/srv/work/shop/.env", "~/x", "/a\n/b/c/d",
        "/home/ann/.claude/plans/a.md", "/home/ann/.codex/x/y.md", "/srv/shop/.git/info/x", "/home/ann/.ssh/keys/x",
        "/home/ann/.config/app/x", "/home/ann/work/.cache/x.md", ".claude/plans/a.md",
    ],
)  # fmt: skip
def test_files_near_the_root_and_hidden_ones_have_no_shape(about: str) -> None:
    assert classify_call_shape("file_path", about).key == ""


@pytest.mark.parametrize(
    ("seen", "evil"),
    [
        ("rg 'def total' cart", ["rg '--pre=./evil.sh' x", 'rg "--pre=./evil.sh" x', "rg '-f/etc/passwd' x"]),
        ("git grep 'total' cart", ["git grep '-Osh evil.sh' x", 'git grep "-Osh evil.sh" x']),
        ("git log 'main'", ["git log '--output=/home/ann/.bashrc'", 'git log "--output=x"']),
        ("grep 'x' a", ["grep '-f' '/etc/passwd'"]),
    ],
)
def test_an_option_in_quotes_is_an_option(seen: str, evil: list[str]) -> None:
    shape = group(seen)
    rule = DecisionRule(1, "Bash", ALLOW, build_shape_pattern(shape) or "")
    words = seen.partition("'")[0]
    for fits in [seen, words + "'other x-y'", words + '"other"', words + "''", words + '""']:
        assert rule.matches_call("Bash", fits, None), fits
    assert [one for one in evil if rule.matches_call("Bash", one, None)] == []
    assert "in quotes that a shell leaves alone and that does not begin with -" in describe_shape_pattern(
        shape
    )


def test_an_option_that_was_seen_in_quotes_is_taken_as_it_was() -> None:
    rule = DecisionRule(1, "Bash", ALLOW, build_shape_pattern(group("rg '-e x' a", "rg 'y' b")) or "")
    assert rule.matches_call("Bash", "rg '-e x' 'z' c", None)
    assert not rule.matches_call("Bash", "rg '-e y' 'z' c", None)


def test_uniq_has_a_shape_only_without_files_because_it_overwrites_the_second() -> None:
    assert (
        classify_call_shape("command", "uniq a").key
        == classify_call_shape("command", "sort x | uniq '-c' a").key
        == ""
    )
    rule = DecisionRule(1, "Bash", ALLOW, build_shape_pattern(group("sort x | uniq -c")) or "")
    assert rule.matches_call("Bash", "sort y | uniq -c", None)
    assert not rule.matches_call("Bash", "sort y | uniq -c a b", None)


@pytest.mark.parametrize("program", ["nice", "command", "builtin", "stdbuf", "busybox", "flock", "strace"])
def test_commands_that_run_others_have_no_shape(program: str) -> None:
    assert classify_call_shape("command", f"{program} make test").key == ""


@pytest.mark.parametrize(
    "command",
    [
        "for i in 1 2; do rm -rf /srv/build1; done",
        "if test -d /srv/db1; then dropdb db1; fi",
        "if test -d /srv/db1; then ls; else dropdb db1; fi",
        "while true; do dropdb db1; done",
        *(
            f"{runner} rm -rf /srv/build1"
            for runner in (
                "xvfb-run", "systemd-run", "nice", "timeout 5", "watch", "setpriv", "runuser", "caffeinate", "unbuffer",
                "script -c", "flock /tmp/l", "stdbuf -o0", "chronic", "a-runner-nobody-knows --quiet", "! ", "{",
            )
        ),
        "rg --pre cat x",
        "git grep -Oless x",
        "sort --compress-program=gzip x",
        "pytest -p plugin tests",
    ],
)  # fmt: skip
def test_what_may_run_another_program_is_only_ever_taken_word_for_word(command: str) -> None:
    assert classify_call_shape("command", command).key == ""
