"""Rules that say in terms what a call does, for every form of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.errors import UnprocessableRequest
from coordinator.policy.rules import ready_made, tool_rules
from coordinator.policy.rules.call_text import (
    build_call_text_from_input,
    build_call_text_from_patch,
    copy_call_text_with_folder,
)
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, OBSERVE, DecisionRule, Ruling
from tests.calls.test_commands import read_cases

pytestmark = pytest.mark.one_engine
FOLDER = "/home/bob/shop"
FIELDS = {"Bash": "command", "Read": "file_path", "Write": "file_path", "Grep": "pattern", "WebFetch": "url"}


def decide(rule: DecisionRule, tool: str, tool_input: Any, folder: str | None = FOLDER) -> Ruling:
    text = build_call_text_from_input(tool_input, FIELDS.get(tool))
    if tool == "apply_patch":
        text = build_call_text_from_patch(tool_input, "command")
    return tool_rules.tool_ruling_or_no_opinion(
        [rule], tool, copy_call_text_with_folder(text, folder), None, "claude-code"
    )


def decide_command(rule: DecisionRule, command: str) -> str:
    return decide(rule, "Bash", {"command": command}).decision


def rule(verdict: str, **terms: Any) -> DecisionRule:
    made = DecisionRule(1, terms.pop("tool", "*"), verdict, **terms)
    tool_rules.validate_tool_rule(made)
    return made


PUSH = rule(DENY, runs="git push")


@pytest.mark.parametrize("command", read_cases("03-git-push-forms.jsonl"))
def test_every_form_of_a_command_is_denied(command: str) -> None:
    assert decide_command(PUSH, command) == DENY


@pytest.mark.parametrize("command", read_cases("04-words-only-quoted.jsonl"))
def test_quoted_words_are_not_denied(command: str) -> None:
    assert decide_command(PUSH, command) == OBSERVE


@pytest.mark.parametrize("command", read_cases("03-git-push-forms.jsonl"))
def test_a_pattern_finds_the_static_forms_as_the_shell_runs_them(command: str) -> None:
    plain = DecisionRule(1, "Bash", DENY, "^git push")
    is_dynamic = any(sign in command for sign in ("$p", "$(", "\u00a0"))
    assert decide_command(plain, command) == DENY or is_dynamic
    assert decide_command(
        DecisionRule(1, "Bash", DENY, "^git push", unreadable="match"), command
    ) == DENY or ("$p" in command)


@pytest.mark.parametrize("command", read_cases("git-push-hidden.jsonl"))
def test_a_command_that_another_starts_is_asked_about_or_what_starts_it_cannot_be_read(command: str) -> None:
    publishes = ready_made.BY_NAME["publishes"].build_rule(1)
    assert decide_command(publishes, command) == ASK


@pytest.mark.parametrize(
    "command",
    [
        "PAGER=cat git log", "GIT_EDITOR=true git rebase --continue", "ENV=test make", "BASH_ENV= ls",
        "PS1='\\u@\\h $ ' ls", "sed -n '/else/p' f", "sed 's/a/e/' f", "sed 's/e/x/g' f", "sed '/^e /d' f",
        "sed -e 's|/e|/x|;s/b/c/' f", "sed -i 's/some; else/x/' f", "sed 's,a,b,;s,c,e,' f", "sed '$!{/e/d}' f",
        "git -c core.pager=cat log", "git -c alias.x=log x", "git config user.name x", "git -c user.name=x commit -m y",
        "git rebase -x 'make test' main", "git submodule foreach 'git status'", "coproc cat", "env - ls", "tmux ls",
        "kubectl get pods", "mise ls", "bwrap --version", "gdb --version", "at -l", "vim +12 f", "tar -xzf a.tar",
        "rg -e x --pre-glob y", "go test ./...", "npm ci",
    ],
)  # fmt: skip
def test_a_command_that_starts_nothing_of_the_kind_is_not_asked_about(command: str) -> None:
    publishes = ready_made.BY_NAME["publishes"].build_rule(1)
    assert decide_command(publishes, command) == OBSERVE


def test_the_reason_says_what_cannot_be_read() -> None:
    ruling = decide(PUSH, "Bash", {"command": "$(echo git) push"})
    assert "cannot be read: the output of $(echo git) as a program" in ruling.reason
    assert "cannot be read" not in decide(PUSH, "Bash", {"command": "git push"}).reason


def test_a_rule_can_say_that_what_cannot_be_read_is_no_match() -> None:
    assert decide_command(rule(DENY, runs="git push", unreadable="ignore"), "$x push") == OBSERVE
    assert decide_command(rule(ASK, runs="git push", unreadable="ignore"), "git push") == ASK


@pytest.mark.parametrize(
    ("runs", "command", "matches"),
    [
        ("git push --force|-f", "git push -f", True),
        ("git push --force|-f", "git push -uf origin main", True),
        ("git push --force|-f", "git push --forc", True),
        ("git push --force|-f", "git push", False),
        ("git push --force|-f", "git push $x", True),
        ("git push", "git --no-pager push", True),
        ("git push", "git --unknown value push", True),
        ("git push", "git stash push", False),
        ("git push", "git -C push status", False),
        ("git push", "GIT PUSH", True),
        ("git push", "git.exe push", True),
        ("git push|pull", "git pull", True),
        ("npm|pnpm publish", "pnpm publish", True),
        ("rm -r", "rm -rf x", True),
        ("rm -r", "rm x", False),
        ("kubectl delete", "kubectl -n prod delete pod x", True),
        ("docker push", "docker --context x push y", True),
        ("pip install", "python3 -m pip install x", True),
        ("git config -c=core.*", "git config x", False),
        ("curl", "x; curl y", True),
        ("curl", "xcurl y", False),
        ("git push * +*", "git push origin +main", True),
        ("terraform apply", "terraform -chdir=x apply", True),
        ("gh release create", "gh release create v1", True),
        ("gh release create", "gh release view v1", False),
        ("gh release create", 'gh issue create --title "gh release create"', False),
    ],
)
def test_a_line_means_program_words_and_options(runs: str, command: str, matches: bool) -> None:
    assert decide_command(rule(DENY, runs=runs), command) == (DENY if matches else OBSERVE)


@pytest.mark.parametrize(
    ("touches", "tool", "tool_input", "matches"),
    [
        (".env", "Read", {"file_path": "/home/bob/shop/.env"}, True),
        (".env", "Read", {"file_path": "config/../.env"}, True),
        (".env", "Read", {"file_path": "/home/bob/shop/env.py"}, False),
        (".env", "Grep", {"pattern": "x", "path": ".env"}, True),
        (".env", "Grep", {"pattern": ".env", "path": "src"}, False),
        (".env", "Grep", {"pattern": "x", "glob": ".env*"}, True),
        (".env", "Bash", {"command": "cat .env"}, True),
        (".env", "Bash", {"command": "cat .e'n'v"}, True),
        (".env", "Bash", {"command": "cat < .env"}, True),
        (".env", "Bash", {"command": "cp .env /tmp/x"}, True),
        (".env", "Bash", {"command": "cat .e*"}, True),
        (".env", "Bash", {"command": "git show HEAD:.env"}, True),
        (".env", "Bash", {"command": "mytool --config=.env"}, True),
        (".env", "Bash", {"command": "git commit -m 'add .env'"}, False),
        (".env", "Bash", {"command": "echo .env"}, False),
        (".env", "Bash", {"command": "find . -exec cat {}/.env \\;"}, True),
        (".env", "apply_patch", {"command": "*** Begin Patch\n*** Update File: a/.env\n@@\n+x\n"}, True),
        (".env", "apply_patch", {"command": "*** Begin Patch\n*** Update File: a\n@@\n+.env\n"}, False),
        (".env", "mcp__fs__read", {"where": "/home/bob/shop/.env"}, True),
        ("~/.ssh", "Bash", {"command": "cat ~/.ssh/id_rsa"}, True),
        ("~/.ssh", "Bash", {"command": 'cat "$HOME/.ssh/id_rsa"'}, True),
        ("~/.ssh", "Read", {"file_path": "/home/alice/.ssh/config"}, True),
        ("~/.ssh", "Read", {"file_path": "/Users/bob/.ssh/config"}, True),
        ("~/.ssh", "Bash", {"command": "cd ~/.ssh && cat id_rsa"}, True),
        ("~/.ssh", "Bash", {"command": "tar czf x.tgz -C ~ .ssh"}, True),
        ("~/.ssh", "Bash", {"command": "d=.ssh; cat ~/$d/id_rsa"}, True),
        ("~/.ssh", "Bash", {"command": "cat src/$x"}, False),
        ("deletes outside", "Bash", {"command": "rm -rf /etc/x"}, True),
        ("deletes outside", "Bash", {"command": "rm -rf ../x"}, True),
        ("deletes outside", "Bash", {"command": "cd .. && rm -rf x"}, True),
        ("deletes outside", "Bash", {"command": "find /var -delete"}, True),
        ("deletes outside", "Bash", {"command": "find /var -exec rm {} +"}, True),
        ("deletes outside", "Bash", {"command": "ls | xargs rm"}, True),
        ("deletes outside", "Bash", {"command": "rm -rf build ./x"}, False),
        ("deletes outside", "Bash", {"command": "cat /etc/x"}, False),
        ("deletes outside", "Bash", {"command": "git -C /other rm x"}, True),
        ("deletes ./src", "Bash", {"command": "rm -rf ."}, True),
        ("writes /etc", "Bash", {"command": "echo x | sudo tee /etc/hosts"}, True),
        ("writes /etc", "Bash", {"command": "echo x > /etc/hosts"}, True),
        ("writes /etc", "Bash", {"command": "cat /etc/hosts"}, False),
        ("writes /etc", "Write", {"file_path": "/etc//hosts", "content": ""}, True),
        ("outside\n!/tmp", "Read", {"file_path": "/tmp/x"}, False),
        ("outside\n!/tmp", "Read", {"file_path": "/tmp/../etc/x"}, True),
        ("outside", "Grep", {"pattern": "x"}, False),
        ("outside", "Grep", {"pattern": "x", "path": "/"}, True),
    ],
)
def test_a_line_means_paths_wherever_a_call_names_them(
    touches: str, tool: str, tool_input: dict[str, Any], matches: bool
) -> None:
    assert decide(rule(DENY, touches=touches), tool, tool_input).decision == (DENY if matches else OBSERVE)


@pytest.mark.parametrize(
    ("reaches", "tool", "tool_input", "matches"),
    [
        ("evil.example", "WebFetch", {"url": "https://EVIL.example/x"}, True),
        ("evil.example", "WebFetch", {"url": "https://evil.example@good.example/"}, False),
        ("*.example", "Bash", {"command": "curl -s https://a.example/x"}, True),
        ("a.example", "Bash", {"command": "curl a.example"}, True),
        ("a.example", "Bash", {"command": "wget -q 'http://a.example:81/x'"}, True),
        ("a.example", "Bash", {"command": "git clone git@a.example:x/y.git"}, True),
        ("a.example", "Bash", {"command": "git push https://a.example/x"}, True),
        ("a.example", "Bash", {"command": "ssh bob@a.example ls"}, True),
        ("a.example", "Bash", {"command": "pip install -i https://a.example/simple x"}, True),
        ("a.example", "Bash", {"command": "npm i --registry=https://a.example"}, True),
        ("a.example", "Bash", {"command": "curl $URL"}, True),
        ("a.example", "Bash", {"command": "curl https://b.example/$x"}, False),
        ("a.example", "Bash", {"command": "echo https://a.example"}, False),
        ("*\n!localhost", "Bash", {"command": "curl http://localhost:80"}, False),
        ("*\n!localhost", "Bash", {"command": "curl http://localhost.evil.example"}, True),
    ],
)
def test_a_line_means_hosts(reaches: str, tool: str, tool_input: dict[str, Any], matches: bool) -> None:
    assert decide(rule(DENY, reaches=reaches), tool, tool_input).decision == (DENY if matches else OBSERVE)


def test_several_kinds_of_lines_must_all_fit() -> None:
    both = rule(DENY, runs="curl", reaches="a.example")
    assert decide_command(both, "curl https://a.example") == DENY
    assert decide_command(both, "curl https://b.example") == OBSERVE
    assert decide_command(both, "wget https://a.example") == OBSERVE


def test_a_call_without_its_sandbox_is_found() -> None:
    guard = rule(ASK, runs="without sandbox")
    assert decide(guard, "Bash", {"command": "ls", "dangerouslyDisableSandbox": True}).decision == ASK
    assert decide(guard, "Bash", {"command": "ls", "dangerouslyDisableSandbox": False}).decision == OBSERVE
    assert decide_command(guard, "claude -p x --dangerously-skip-permissions") == ASK


ALLOWED = [
    "git status", "git status src", "ls -la src", "NODE_ENV=test ls", "cd src && git status",
    "time git status",
    "git status; ls", "git status 2>&1", "git status 2>/dev/null", "ls src/*.py", "timeout 5 git status",
    "/usr/bin/git status",
]  # fmt: skip
NOT_ALLOWED = [
    "git push", "git status; rm x", "git status && curl x", "git status > f", "git status > /etc/f",
    "git status $x",
    "git status $(rm x)", "git status `rm x`", "PATH=/tmp git status", "LD_PRELOAD=x ls",
    "/tmp/git status", "./git status",
    "ls /etc", "ls ..", "ls ~", "ls $HOME", "cd / && ls", "git -c core.pager=x status",
    "git --git-dir=/x status", "ls .env",
    "git status | sh", "ls | xargs rm", "find . -exec rm {} +", "bash -c 'rm x'", "ls <(rm x)", "ls *",
    "ls\nrm x", "ls &rm x",
    "eval ls", "sudo git status", "git status --output=x", "ls() { rm x; }; ls", "alias ls=rm; ls",
    "ls .claude/settings.json",
    "git -C /other status", "! rm x", "ls < /etc/passwd", "cat <<E\n$(rm x)\nE", "ls 'unclosed", "ls .e*",
    "export A=1; ls",
    "PATH=x; ls", "ls\u00a0x",
]  # fmt: skip
SAFE = rule(ALLOW, runs="git status\nls -l -a", tool="Bash")


SEARCH = rule(ALLOW, runs="grep -*", touches="inside\n!.env*", tool="Bash")


@pytest.mark.parametrize(
    "command", ["grep -r x .", "grep -rn x", "grep -R x ./", "grep --recursive x ../shop"]
)
def test_allow_never_covers_a_search_that_reads_every_file_of_the_project(command: str) -> None:
    assert decide_command(SEARCH, command) != ALLOW


@pytest.mark.parametrize("command", ["grep -rn x src", "grep -r --include='*.py' x .", "grep x a.py"])
def test_allow_covers_a_search_of_a_folder_or_of_named_files(command: str) -> None:
    assert decide_command(SEARCH, command) == ALLOW


@pytest.mark.parametrize("command", ALLOWED)
def test_allow_covers_what_it_names(command: str) -> None:
    assert decide_command(SAFE, command) == ALLOW


@pytest.mark.parametrize("command", NOT_ALLOWED)
def test_allow_never_covers_more(command: str) -> None:
    assert decide_command(SAFE, command) == OBSERVE


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(ALLOWED),
    st.sampled_from(["; ", " && ", " | ", " & ", "\n", " || ", " $(", " `", " > ", " <(", "; bash -c '"]),
    st.sampled_from(["rm x", "curl x", "git push", "/tmp/x", "x=1 y"]),
)
def test_allow_never_widens_by_appending(command: str, joint: str, more: str) -> None:
    end = {" $(": ")", " `": "`", " <(": ")", "; bash -c '": "'"}.get(joint, "")
    assert decide_command(SAFE, f"{command}{joint}{more}{end}") == OBSERVE


def test_allow_by_paths_and_hosts() -> None:
    docs = rule(ALLOW, touches="writes docs", tool="kind:write|kind:read")
    assert decide(docs, "Write", {"file_path": "docs/a.md", "content": "x"}).decision == ALLOW
    assert decide(docs, "Read", {"file_path": f"{FOLDER}/docs/a.md"}).decision == ALLOW
    for path in ("docs/../src/a", "docsx/a", "/etc/docs/a", "docs/.env", "../docs/a"):
        assert decide(docs, "Write", {"file_path": path, "content": "x"}).decision == OBSERVE, path
    assert decide(docs, "Write", {"file_path": "docs/a.md", "unknown_field": "x"}).decision == OBSERVE
    web = rule(ALLOW, reaches="docs.example", tool="WebFetch")
    assert decide(web, "WebFetch", {"url": "https://docs.example/x", "prompt": "y"}).decision == ALLOW
    assert decide(web, "WebFetch", {"url": "https://docs.example.evil/x", "prompt": "y"}).decision == OBSERVE
    inside = rule(ALLOW, touches="reads inside", tool="kind:read|kind:search")
    assert decide(inside, "Grep", {"pattern": "x", "path": "src"}).decision == ALLOW
    assert decide(inside, "Read", {"file_path": "a.pem"}).decision == OBSERVE
    assert decide(inside, "Read", {"file_path": "a.py"}, None).decision == OBSERVE  # nobody knows where


def test_an_allow_rule_holds_in_its_folders_alone() -> None:
    here = rule(ALLOW, runs="git status", touches="in /home/bob/shop", tool="Bash")
    assert decide_command(here, "git status") == ALLOW
    assert decide_command(here, "cd src && git status") == ALLOW
    assert decide_command(here, "cd .. && git status") == OBSERVE
    assert decide_command(here, "cd ../shopping && git status") == OBSERVE
    for folder in ("/home/bob", "/home/bob/shopping", None):
        assert decide(here, "Bash", {"command": "git status"}, folder).decision == OBSERVE
    assert decide(here, "Bash", {"command": "git status"}, "/home/bob/shop/src").decision == ALLOW


def test_a_rule_that_restricts_may_be_about_folders() -> None:
    prod = rule(ASK, runs="make", touches="in /srv/prod")
    assert decide(prod, "Bash", {"command": "make"}, "/srv/prod/a").decision == ASK
    assert decide(prod, "Bash", {"command": "make"}, "/srv/test").decision == OBSERVE
    assert decide(prod, "Bash", {"command": "cd /srv/prod && make"}, "/srv/test").decision == ASK
    assert decide(prod, "Bash", {"command": "make"}, None).decision == ASK  # it may be there


def test_a_line_that_ends_covers_no_other_word() -> None:
    make = rule(ALLOW, runs="make test !*", tool="Bash")
    assert decide_command(make, "make test") == ALLOW
    for command in ("make test deploy", "make", "make test -B", "make deploy"):
        assert decide_command(make, command) == OBSERVE, command
    bare = rule(DENY, runs="make !*")
    assert decide_command(bare, "make") == DENY
    assert decide_command(bare, "make test") == OBSERVE
    assert decide_command(bare, "make $x") == DENY  # it may be no word


def test_a_sign_stands_for_numbers() -> None:
    tail = rule(ALLOW, runs="tail -#\nsed -n #,#p", tool="Bash")
    for command in ("tail -5 a.py", "tail -200 a.py", "sed -n 1,80p a.py"):
        assert decide_command(tail, command) == ALLOW, command
    for command in ("tail -f a.py", "sed -n 1,80w a.py", "sed -n '1,80p;1e rm' a.py"):
        assert decide_command(tail, command) == OBSERVE, command


def test_what_the_shell_writes_needs_a_line_that_says_so() -> None:
    inside = rule(ALLOW, runs="git log", touches="inside", tool="Bash")
    assert decide_command(inside, "git log src") == ALLOW
    assert decide_command(inside, "git log > Makefile") == OBSERVE
    logs = rule(ALLOW, runs="git log", touches="inside\nwrites build", tool="Bash")
    assert decide_command(logs, "git log > build/log.txt") == ALLOW
    assert decide_command(logs, "git log > Makefile") == OBSERVE


def test_what_is_excepted_is_excepted_wherever_it_may_be() -> None:
    reading = rule(ALLOW, touches="/var/log\ninside\n!.env*", tool="Read")
    assert decide(reading, "Read", {"file_path": "/var/log/shop/a.log"}).decision == ALLOW
    assert decide(reading, "Read", {"file_path": "/var/log/shop/.env.old"}).decision == OBSERVE
    assert decide(reading, "Read", {"file_path": "src/.env.old"}).decision == OBSERVE


def test_a_program_that_starts_another_is_covered_with_its_own_words() -> None:
    checks = rule(ALLOW, runs="uv run\npytest -q", tool="Bash")
    assert decide_command(checks, "uv run pytest -q tests") == ALLOW
    for command in (
        "uv run rm x",
        "uv run --with evil pytest -q",
        "uv run pytest -p evil",
        "uv pip install x",
    ):
        assert decide_command(checks, command) == OBSERVE, command


def test_a_rule_that_is_off_decides_nothing() -> None:
    assert decide_command(rule(DENY, runs="git push", is_off=True), "git push") == OBSERVE
    assert decide_command(rule(ALLOW, runs="git status", is_off=True), "git status") == OBSERVE


def test_allow_says_nothing_of_tools_that_nobody_knows() -> None:
    everything = rule(ALLOW, runs="ls", touches="*", reaches="*", tool="*")
    assert decide(everything, "mcp__fs__read", {"path": "/x"}).decision == OBSERVE
    assert decide(everything, "TodoWrite", {}).decision == OBSERVE
    assert (
        decide(everything, "Bash", {"command": "ls", "dangerouslyDisableSandbox": True}).decision == OBSERVE
    )


def test_a_call_of_which_only_a_text_is_known_is_restricted_and_never_covered() -> None:
    assert tool_rules.tool_ruling_or_no_opinion([PUSH], "Bash", "git status", None).decision == DENY
    assert tool_rules.tool_ruling_or_no_opinion([SAFE], "Bash", "git status", None).decision == OBSERVE


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"runs": "git push; ls"}, "one command a line"),
        ({"runs": "--force"}, "names no program"),
        ({"touches": "../x"}, "names no path"),
        ({"touches": "writes"}, "names no path"),
        ({"touches": "in shop"}, "names no folder"),
        ({"reaches": "a b"}, "names no host"),
        ({"runs": "\n".join(["x"] * 101)}, "at most 100 lines"),
        ({"unreadable": "perhaps"}, "is not known"),
    ],
)
def test_terms_that_cannot_be_read_are_refused_with_a_reason(terms: dict[str, str], message: str) -> None:
    with pytest.raises(UnprocessableRequest, match=message):
        rule(DENY, **terms)


def test_terms_that_another_program_wrote_badly_ask_a_person() -> None:
    broken = DecisionRule(1, "*", ALLOW, runs="--x")
    assert decide_command(broken, "ls") == ASK


def test_a_long_call_is_restricted_and_not_covered() -> None:
    command = "ls " + "a" * 70_000 + "; git push"
    assert decide_command(PUSH, command) == DENY
    assert decide_command(SAFE, "ls " + "a" * 70_000) == OBSERVE


def test_masked_inputs_of_any_shape_are_read() -> None:
    for value in (
        None,
        1,
        ["x"],
        {"a": {"b": [1, None, "/x"]}},
        {"command": 7},
        {"command": [1]},
        {"file_path": {}},
    ):
        json.dumps(value)
        assert decide(PUSH, "Bash", value).decision in {OBSERVE, DENY}
