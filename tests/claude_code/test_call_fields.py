"""Deny and ask rules see every field of a call that says what it reaches; allow rules cover what they were made for."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.policy.rules import call_text, tool_rules
from coordinator.policy.rules.call_text import text_for_allow_rules
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, OBSERVE, DecisionRule
from coordinator.policy.suggestions.search import escape_pattern_text

PATCH = (
    "*** Begin Patch\n*** Update File: notes/a.txt\n@@\n+copy .env.example to .env first\n*** Add File: notes/new.txt\n"
    "+x\n*** Delete File: scratch/f1.txt\n*** Update File: {}\n@@\n+TOKEN=abc\n*** End Patch\n"
)


def decide(rule: DecisionRule, source: str, tool: str, tool_input: dict[str, Any]) -> str:
    tool_rules.validate_tool_rule(rule)
    text = DIALECTS[source].build_call_subject_text(tool, tool_input)
    return tool_rules.tool_ruling_or_no_opinion([rule], tool, text, "agent.bot", source).decision


@pytest.mark.parametrize("verdict", [DENY, ASK])
@pytest.mark.parametrize(
    ("source", "tool", "tool_input"),
    [
        ("claude-code", "Grep", {"pattern": ".", "path": "/srv/app/.env"}),
        ("claude-code", "Grep", {"pattern": "KEY", "glob": ".env*"}),
        ("claude-code", "Glob", {"pattern": "*", "path": "/srv/app/.env.d"}),
        ("claude-code", "NotebookEdit", {"notebook_path": "a.ipynb", "path": "/srv/.env"}),
        ("claude-code", "Bash", {"command": "cat x", "options": {"files": ["a", "/srv/.env"]}}),
        ("opencode", "grep", {"pattern": ".", "path": "/srv/app/.env"}),
        ("gemini", "grep_search", {"pattern": ".", "dir_path": "/srv/app/.env.d"}),
        ("gemini", "run_shell_command", {"command": "cat x", "directory": "/srv/.env.d"}),
        ("cursor", "Grep", {"pattern": ".", "path": "/srv/app/.env"}),
        ("codex", "apply_patch", {"command": PATCH.format("/srv/shop/.env")}),
        ("opencode", "apply_patch", {"patchText": PATCH.format("/srv/shop/.env")}),
    ],
)
def test_deny_and_ask_rules_see_every_field_that_names_a_place(
    verdict: str, source: str, tool: str, tool_input: dict[str, Any]
) -> None:
    assert decide(DecisionRule(1, "*", verdict, r"\.env(\.d|\*)?$"), source, tool, tool_input) == verdict


@pytest.mark.parametrize(
    ("source", "tool", "tool_input"),
    [
        ("codex", "apply_patch", {"command": PATCH.format("README.md")}),
        ("opencode", "apply_patch", {"patchText": PATCH.format("README.md")}),
        ("claude-code", "Write", {"file_path": "README.md", "content": "Keep .env out of git"}),
        ("claude-code", "Edit", {"file_path": "a", "old_string": ".env", "new_string": ".env.d"}),
        ("claude-code", "Bash", {"command": "ls", "description": "look for .env"}),
    ],
)
def test_what_is_only_written_or_described_is_seen_by_no_rule(
    source: str, tool: str, tool_input: dict[str, Any]
) -> None:
    assert decide(DecisionRule(1, "*", DENY, r"\.env"), source, tool, tool_input) == OBSERVE


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/srv/../etc/shadow",
        "//etc/shadow",
        "/srv/./../etc/shadow",
        "/srv/a://../../etc/shadow",
        "/srv/a\n/../../etc/shadow",
    ],
)
def test_a_path_is_judged_as_what_it_means(path: str) -> None:
    call = ("claude-code", "Read", {"file_path": path})
    assert decide(DecisionRule(1, "Read", DENY, "^/etc/"), *call) == DENY
    assert decide(DecisionRule(1, "Read", ALLOW, "/srv/.*"), *call) == OBSERVE
    assert decide(DecisionRule(1, "Read", ALLOW, "(?s)/srv/.*"), *call) == OBSERVE
    assert decide(DecisionRule(1, "Read", ALLOW, escape_pattern_text(path)), *call) in (ALLOW, OBSERVE)


@pytest.mark.parametrize(
    "added",
    [
        {"dangerouslyDisableSandbox": True},
        {"a_field_of_next_year": "x"},
        {"sandbox_permissions": "require_escalated"},
    ],
)
def test_an_allow_rule_covers_no_field_that_it_does_not_name(added: dict[str, Any]) -> None:
    call = {"command": "npm test"}
    plain = DecisionRule(1, "Bash", ALLOW, escape_pattern_text("npm test"))
    assert decide(plain, "claude-code", "Bash", call) == ALLOW
    assert decide(plain, "claude-code", "Bash", call | added) == OBSERVE
    assert decide(DecisionRule(1, "Bash", ALLOW, ".*"), "claude-code", "Bash", call | added) == OBSERVE
    exact = DecisionRule(
        1,
        "Bash",
        ALLOW,
        escape_pattern_text(
            text_for_allow_rules(DIALECTS["claude-code"].build_call_subject_text("Bash", call | added))
        ),
    )
    assert decide(exact, "claude-code", "Bash", call | added) == ALLOW
    assert decide(exact, "claude-code", "Bash", call) == OBSERVE


@pytest.mark.parametrize(
    "field", ["dangerouslyDisableSandbox", "with_escalated_permissions", "sandbox_permissions"]
)
def test_a_rule_without_a_pattern_covers_no_lifted_guard(field: str) -> None:
    rule = DecisionRule(1, "Bash", ALLOW)
    assert decide(rule, "claude-code", "Bash", {"command": "ls", field: True}) == OBSERVE
    assert decide(rule, "claude-code", "Bash", {"command": "ls", field: False}) == ALLOW
    assert decide(rule, "claude-code", "Bash", {"command": "ls", "another": 1}) == ALLOW


@pytest.mark.parametrize(
    "beside",
    [
        {"description": "Run tests", "timeout": 600_000},
        {"run_in_background": True},
        {"dangerouslyDisableSandbox": False},
    ],
)
def test_an_allow_rule_covers_fields_that_change_nothing(beside: dict[str, Any]) -> None:
    rule = DecisionRule(1, "Bash", ALLOW, escape_pattern_text("npm test"))
    assert decide(rule, "claude-code", "Bash", {"command": "npm test", **beside}) == ALLOW


def test_an_allow_rule_fits_a_patch_only_where_all_its_targets_are_named() -> None:
    rule = DecisionRule(1, "apply_patch", ALLOW, "/srv/shop/notes/.*")
    single = "*** Begin Patch\n*** Update File: /srv/shop/notes/a.txt\n+x\n*** End Patch"
    double = single.replace("+x", "+x\n*** Delete File: /srv/shop/.env")
    assert decide(rule, "codex", "apply_patch", {"command": single}) == ALLOW
    assert decide(rule, "codex", "apply_patch", {"command": double}) == OBSERVE


def test_more_fields_than_are_looked_at_one_by_one_are_looked_at_together() -> None:
    many = {f"f{n}": "x" for n in range(2_000)}
    call = {"pattern": ".", **many, "zz": "/srv/.env"}
    assert decide(DecisionRule(1, "Grep", DENY, r"\.env"), "claude-code", "Grep", call) == DENY


def test_a_half_surrogate_in_a_field_is_no_error() -> None:
    call = {"pattern": ".", "path": "/srv/\ud800/.env"}
    assert decide(DecisionRule(1, "Grep", DENY, r"\.env"), "claude-code", "Grep", call) == DENY


@pytest.mark.parametrize(
    ("pattern", "opens"),
    [
        (r"type C:\\notes[^;|&]*", False),
        (r"type C:\\\notes.*", True),  # an escaped backslash, then a line end
        (r"[^\n]*", False),
        (r"[^;\n]*", False),
        (r"a[\n ]b", True),
        (r"a\nb", True),
        (r"(?s)a.*", True),
        (r"(?is:a.*)", True),
        (r"\(?s", False),
        (r"[(?s]*", False),
        (r"\Qa\n\E.*", False),
        (r"a(?i)S", False),
    ],
)
def test_a_pattern_speaks_of_lines_only_where_it_is_written_for_them(pattern: str, opens: bool) -> None:
    tool_rules.validate_tool_rule(DecisionRule(1, "Bash", ALLOW, pattern))
    assert tool_rules.pattern_allows_multiline_text(pattern) is opens


def test_a_windows_path_opens_no_second_line() -> None:
    text = "type C:\\notes\\a.txt\nRemove-Item -Recurse C:\\"
    rule = DecisionRule(1, "Bash", ALLOW, r"type C:\\notes[^;|&]*")
    assert decide(rule, "claude-code", "Bash", {"command": text}) == OBSERVE


@pytest.mark.parametrize("verdict", [DENY, ASK])
@pytest.mark.parametrize(
    ("source", "tool", "tool_input"),
    [
        ("gemini", "read_many_files", {"include": ["README.md", "/etc/shadow"]}),
        ("gemini", "read_many_files", {"include": ["README.md", "/srv/../etc//shadow"]}),
        ("claude-code", "LS", {"path": "/srv/../etc/shadow"}),
        ("claude-code", "mcp__files__read", {"path": "/etc//shadow"}),
        ("claude-code", "Read", {"file_path": "a", "more": ["/etc/shadow", *["b"] * 600]}),
        ("claude-code", "Read", {"file_path": "a", "more": [*["b"] * 600, "/srv/../etc/shadow"]}),
    ],
)
def test_deny_and_ask_rules_see_each_text_of_an_input_whatever_its_form(
    verdict: str, source: str, tool: str, tool_input: dict[str, Any]
) -> None:
    assert decide(DecisionRule(1, "*", verdict, "^/etc/shadow$"), source, tool, tool_input) == verdict
    assert decide(DecisionRule(1, "*", verdict, "^shadow$"), source, tool, tool_input) == OBSERVE


@pytest.mark.parametrize(
    ("source", "tool", "tool_input", "pattern"),
    [
        (
            "codex",
            "apply_patch",
            {"command": PATCH.format("src/../../etc/x")},
            r"((notes|scratch|src)/.*\n?)*",
        ),
        (
            "codex",
            "apply_patch",
            {"command": "*** Begin Patch\n*** Add File: src/../../etc/x\n+x\n*** End Patch\n"},
            "src/.*",
        ),
        (
            "claude-code",
            "Grep",
            {"pattern": "a", "path": "/srv/../etc"},
            r'\{"path": "/srv/.*", "pattern": "a"\}',
        ),
        ("claude-code", "LS", {"path": "/srv/../etc"}, r'\{"path": "/srv/.*"\}'),
    ],
)
def test_allow_rules_for_a_folder_fit_no_path_that_leaves_it(
    source: str, tool: str, tool_input: dict[str, Any], pattern: str
) -> None:
    assert decide(DecisionRule(1, tool, ALLOW, pattern), source, tool, tool_input) == OBSERVE


@pytest.mark.parametrize("pattern", ["", ".*"])
def test_no_allow_rule_lifts_a_guard_of_a_tool_whose_fields_are_not_known(pattern: str) -> None:
    rule = DecisionRule(1, "kind:command", ALLOW, pattern)
    call = {"command": "ls"}
    assert decide(rule, "claude-code", "PowerShell", call) == ALLOW
    call_without_sandbox = call | {"dangerouslyDisableSandbox": True}
    assert decide(rule, "claude-code", "PowerShell", call_without_sandbox) == OBSERVE


def test_an_allow_rule_for_one_line_fits_no_second_one_behind_a_carriage_return() -> None:
    rule = DecisionRule(1, "kind:command", ALLOW, "ls [^;]*")
    assert decide(rule, "copilot", "powershell", {"command": "ls a\rrm b"}) == OBSERVE


def test_of_more_paths_than_can_be_resolved_a_deny_rule_fits_whatever_they_are() -> None:
    call = {"file_path": "a", "more": ["/srv/../b"] * 6_000}
    assert decide(DecisionRule(1, "Read", DENY, "^/etc/"), "claude-code", "Read", call) == DENY
    assert (
        decide(DecisionRule(1, "Read", DENY, "^/etc/"), "claude-code", "Read", call | {"more": ["b"] * 6_000})
        == OBSERVE
    )


def test_many_values_are_not_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[str] = []

    def note(path: str) -> list[str]:
        resolved.append(path)
        return []

    monkeypatch.setattr(call_text, "list_normalized_form_if_changed", note)
    call = {"file_path": "a", "more": [1] * 100_000}
    assert decide(DecisionRule(1, "Read", DENY, "^/etc/"), "claude-code", "Read", call) == OBSERVE
    assert len(resolved) < 1_000


def test_a_path_of_windows_is_judged_as_what_it_means() -> None:
    call = ("claude-code", "Write", {"file_path": "C:\\app\\..\\Windows\\x", "content": "x"})
    assert decide(DecisionRule(1, "Write", DENY, r"^C:\\Windows\\"), *call) == DENY
    assert decide(DecisionRule(1, "Write", ALLOW, r"C:\\app\\.*"), *call) == OBSERVE


@pytest.mark.parametrize(
    "path", ["docs/../admin", "docs/%2e%2E/admin", "docs\\..\\admin", "./docs/./../admin"]
)
def test_an_address_is_judged_as_what_it_means(path: str) -> None:
    call = ("claude-code", "WebFetch", {"url": f"https://host.example/{path}?a=../b", "prompt": "x"})
    assert decide(DecisionRule(1, "WebFetch", DENY, r"^https://host\.example/admin\?"), *call) == DENY
    assert (
        decide(DecisionRule(1, "WebFetch", ALLOW, r"(?s)https://host\.example/\.?/?docs.*"), *call) == OBSERVE
    )
    plain = (*call[:2], {"url": "https://host.example/docs/a?b=../c", "prompt": "x"})
    assert decide(DecisionRule(1, "WebFetch", ALLOW, r"https://host\.example/docs/.*"), *plain) == ALLOW


@pytest.mark.parametrize("beside", [[], ["x"] * 600])
@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("rm\t-rf /", r"rm\s+-rf"),
        ("rm\n-rf /", r"rm\s+-rf"),
        ('drop "users"', 'drop "users"'),
        ("type C:\\new", r"C:\\new"),
        ("a\x0bb", r"a\vb"),
    ],
)
def test_no_number_of_values_hides_a_text_behind_the_escapes_of_json(
    beside: list[str], text: str, pattern: str
) -> None:
    rule = DecisionRule(1, "mcp__shell__run|shell", DENY, pattern)
    words = ["bash", "-lc", text, *beside]
    assert decide(rule, "claude-code", "mcp__shell__run", {"args": words}) == DENY
    assert decide(rule, "codex", "shell", {"command": words}) == DENY


@pytest.mark.parametrize("field", ["query", "content", "prompt", "instruction", "description"])
@pytest.mark.parametrize("text", ["DROP TABLE x", "DROP\nTABLE x", "DROP\t TABLE x"])
def test_where_no_field_names_a_call_each_is_seen_as_it_is(field: str, text: str) -> None:
    rule = DecisionRule(1, "mcp__db__*", DENY, r"DROP\s+TABLE")
    assert decide(rule, "claude-code", "mcp__db__run", {field: text}) == DENY


def test_in_codex_a_command_hides_no_other_field_of_an_mcp_servers_tool() -> None:
    rule = DecisionRule(1, "mcp__db__*", DENY, r"DROP\s+TABLE")
    call = {"command": "x", "content": "DROP TABLE x"}
    assert decide(rule, "codex", "mcp__db__run", call) == DENY


@pytest.mark.parametrize(
    ("source", "field", "header"),
    [
        ("codex", "command", "  *** Add File: /etc/x"),
        ("codex", "command", "\u00a0*** Delete File: /etc/x"),
        ("opencode", "patchText", "*** Add File:/etc/x"),
    ],
)
def test_a_patchs_targets_are_those_that_its_agent_takes_for_one(
    source: str, field: str, header: str
) -> None:
    call = {field: f"*** Begin Patch\n*** Add File: src/a\n+x\n{header}\n+x\n*** End Patch\n"}
    assert decide(DecisionRule(1, "apply_patch", DENY, "^/etc/"), source, "apply_patch", call) == DENY
    allow = DecisionRule(1, "apply_patch", ALLOW, r"(src/.*\n?)*")
    assert decide(allow, source, "apply_patch", call) == OBSERVE
    assert decide(allow, source, "apply_patch", {field: call[field].replace("/etc/", "src/")}) == ALLOW


def test_a_patchs_target_counts_as_far_as_its_colon_too() -> None:
    target = "/srv/../etc/x:/../../../src/b"
    call = {"patchText": f"*** Begin Patch\n*** Add File: {target}\n+x\n*** End Patch\n"}
    assert decide(DecisionRule(1, "apply_patch", DENY, "^/etc/"), "opencode", "apply_patch", call) == DENY
