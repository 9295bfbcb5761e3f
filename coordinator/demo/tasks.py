"""What a session goes through: each task is a generator of steps, told from a seeded dice so it can be repeated.

A step says what was said or called and how long it took; `week` gives it a time, `fill` an event. Inputs and
outputs have the shapes that coding agents send (`Bash` with `command`, `Edit` with two strings, `mcp__…`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from coordinator.demo.cast import Team


@dataclass(frozen=True, slots=True)
class MessageStep:
    """Something said, in Markdown, by the `user` or the `assistant`; an assistant's words cost tokens."""

    role: str
    text: str
    seconds: float = 4.0


@dataclass(frozen=True, slots=True)
class ToolCallStep:
    """A tool call. `error` is set where it failed; `output` is None where no result was ever reported."""

    tool: str
    input: dict[str, Any]
    output: Any = None
    error: str | None = None
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class PointStep:
    """What an agent reports beside calls and messages, as that it compacts the conversation."""

    event_type: str
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PermissionStep:
    """A call that waits for a person's word first; made only where the word is yes."""

    permission: str
    target: str
    why: str
    call: ToolCallStep
    plugin: str = "tool.terminal"


@dataclass(frozen=True, slots=True)
class DelegationStep:
    """Work handed to a child session of another trade of the same team."""

    trade: str
    prompt: str


@dataclass(frozen=True, slots=True)
class EndStep:
    """How the session ends: `finished`, `error` (with its text) or `stopped`."""

    status: str = "finished"
    error: str | None = None


Step = MessageStep | ToolCallStep | PermissionStep | DelegationStep | EndStep
Task = Callable[[Random, Team], Iterator[Step]]


@dataclass(slots=True)
class TaskRegistry:
    tasks: dict[str, Task] = field(default_factory=dict)

    def __call__(self, task: Task) -> Task:
        self.tasks[task.__name__] = task
        return task


task = TaskRegistry()


def bash_step(
    command: str, output: str = "", *, error: str | None = None, seconds: float = 1.5
) -> ToolCallStep:
    result = None if error else {"stdout": output, "stderr": "", "interrupted": False}
    return ToolCallStep("Bash", {"command": command}, result, error, seconds)


def read_file_step(path: str, text: str, seconds: float = 0.2) -> ToolCallStep:
    return ToolCallStep(
        "Read",
        {"file_path": path},
        {"type": "text", "file": {"filePath": path, "content": text}},
        None,
        seconds,
    )


def grep_step(pattern: str, path: str, hits: list[str]) -> ToolCallStep:
    output = {"mode": "files_with_matches", "filenames": hits, "numFiles": len(hits)}
    return ToolCallStep(
        "Grep", {"pattern": pattern, "path": path, "output_mode": "files_with_matches"}, output, None, 0.3
    )


def edit_file_step(path: str, old: str, new: str) -> ToolCallStep:
    output = {"filePath": path, "oldString": old, "newString": new, "userModified": False}
    return ToolCallStep("Edit", {"file_path": path, "old_string": old, "new_string": new}, output, None, 0.4)


def mcp_tool_step(
    server: str, tool: str, arguments: dict[str, Any], text: str, seconds: float = 0.8
) -> ToolCallStep:
    return ToolCallStep(f"mcp__{server}__{tool}", arguments, [{"type": "text", "text": text}], None, seconds)


def todo_list_step(*items: tuple[str, str]) -> ToolCallStep:
    todos = [{"content": text, "status": status, "activeForm": text} for text, status in items]
    return ToolCallStep("TodoWrite", {"todos": todos}, {"newTodos": todos}, None, 0.1)


def fake_function_source(module: str, name: str) -> str:
    """A few lines of code that look like a module of the team's."""
    return (
        f'"""{module.capitalize()}: prices, limits and what may go wrong."""\n\n'
        "from decimal import Decimal\n\n\n"
        f"def {name}(items, *, currency='EUR', limit=None):\n"
        "    total = Decimal(0)\n"
        "    for item in items:\n"
        "        if item.currency != currency:\n"
        '            raise ValueError(f"expected {currency}, got {item.currency}")\n'
        "        total += item.amount * item.quantity\n"
        "    if limit is not None and total > limit:\n"
        "        raise LimitExceeded(total, limit)\n"
        "    return total\n"
    )


def failing_test_output(module: str, test: str) -> str:
    return (
        f"FAILED tests/test_{module}.py::{test} - AssertionError: assert Decimal('19.98') == Decimal('19.99')\n"
        f"=========== short test summary info ===========\n1 failed, 41 passed in 6.84s\n"
    )


@task
def generate_test_fix_steps(dice: Random, team: Team) -> Iterator[Step]:
    module = dice.choice(team.modules)
    test = dice.choice(
        ["test_rounding_of_totals", "test_limit_is_inclusive", "test_empty_list_costs_nothing"]
    )
    path = f"{team.project_dir}/{module}/totals.py"
    yield MessageStep(
        "user",
        f"CI is red on main since this morning: `tests/test_{module}.py::{test}`. Please find out why and fix it.",
    )
    yield MessageStep("assistant", "I'll run the failing test first, then look at what changed around it.")
    yield todo_list_step(
        ("Reproduce the failure", "in_progress"),
        ("Find the change", "pending"),
        ("Fix and run the suite", "pending"),
    )
    yield bash_step(
        f"pytest tests/test_{module}.py -x -q", failing_test_output(module, test), seconds=dice.uniform(5, 12)
    )
    yield grep_step(f"def {module}_total", team.project_dir, [path])
    yield read_file_step(path, fake_function_source(module, f"{module}_total"))
    yield bash_step(
        f"git log --oneline -5 -- {module}/totals.py",
        "9f3c2ab Sum amounts before rounding\n41d90e7 Add limit\n",
    )
    yield MessageStep(
        "assistant",
        "Found it. Commit `9f3c2ab` sums first and rounds once, but the invoice rounds **per line**:\n\n"
        "| | before | after |\n|---|---|---|\n| rounding | per line | on the sum |\n| 2 × 9.995 | 20.00 | 19.99 |\n\n"
        "The test is right; the change is not. I'll round each line again.",
    )
    yield edit_file_step(
        path,
        "        total += item.amount * item.quantity\n",
        '        total += (item.amount * item.quantity).quantize(Decimal("0.01"), ROUND_HALF_UP)\n',
    )
    yield bash_step(f"pytest tests/test_{module}.py -q", "42 passed in 6.51s\n", seconds=dice.uniform(5, 12))
    yield bash_step(
        "pytest -q", f"{dice.randint(380, 1200)} passed, 3 skipped in 58.20s\n", seconds=dice.uniform(40, 75)
    )
    yield PermissionStep(
        "ProcessExecution",
        f"git push origin fix/{module}-rounding",
        "The fix is committed on a branch; pushing it lets CI run and a person review it.",
        bash_step(
            f"git push origin fix/{module}-rounding", "To acme.example:repo.git\n * [new branch]\n", seconds=3
        ),
    )
    yield mcp_tool_step(
        "github",
        "create_pull_request",
        {
            "repo": team.repository,
            "title": f"Round each line of {module} totals",
            "head": f"fix/{module}-rounding",
        },
        f"Created pull request #{dice.randint(800, 2400)}",
    )
    yield MessageStep(
        "assistant",
        f"Done: the rounding is per line again, the whole suite passes, and the pull request is open for {team.name}.",
    )
    yield EndStep()


@task
def generate_bug_fix_steps(dice: Random, team: Team) -> Iterator[Step]:
    """A bug report is followed to its cause; some dead ends on the way."""
    module = dice.choice(team.modules)
    path = f"{team.project_dir}/{module}/service.py"
    issue = dice.randint(1200, 4800)
    yield MessageStep(
        "user",
        f"Customers report duplicate e-mails from {module} (issue #{issue}). It started on Tuesday. Can you look?",
    )
    yield mcp_tool_step(
        "github",
        "search_issues",
        {"repo": team.repository, "query": f"{module} duplicate"},
        f"#{issue} Two confirmation mails for one order (open)\n#{issue - 310} Mail sent twice after retry (closed)",
    )
    yield MessageStep(
        "assistant",
        "A closed issue describes the same after a **retry**. I'll look at how retries are handled now.",
    )
    for name in dice.sample(["worker.py", "retry.py", "events.py", "mailer.py"], 3):
        yield read_file_step(
            f"{team.project_dir}/{module}/{name}", fake_function_source(module, f"handle_{name[:-3]}")
        )
    yield ToolCallStep(
        "Read",
        {"file_path": f"{team.project_dir}/{module}/handlers.py"},
        None,
        f"File does not exist: {team.project_dir}/{module}/handlers.py",
        0.1,
    )
    yield grep_step("send_mail\\(", team.project_dir, [path, f"{team.project_dir}/{module}/retry.py"])
    yield mcp_tool_step(
        "grafana",
        "query_logs",
        {"query": f'{{app="{module}"}} |= "mail sent"', "from": "now-2d", "limit": 50},
        "\n".join(
            f"2026-02-2{dice.randint(1, 3)}T1{i}:0{i}:12Z mail sent order={90000 + i} attempt={1 + i % 2}"
            for i in range(8)
        ),
        seconds=dice.uniform(1, 4),
    )
    yield MessageStep(
        "assistant",
        "Every second mail carries `attempt=2`: the job is retried although the first attempt **did** send.\n\n"
        "```python\ntry:\n    mailer.send(order)\n    order.mark_sent()   # raises on a stale row\nexcept StaleRow:\n"
        "    raise Retry\n```\n\nThe mail leaves before the row is marked. I'll mark first, send after the commit.",
    )
    yield edit_file_step(
        path,
        "    mailer.send(order)\n    order.mark_sent()\n",
        "    order.mark_sent()\n    on_commit(lambda: mailer.send(order))\n",
    )
    yield bash_step(
        f"pytest tests/test_{module}_mail.py -q",
        "",
        error="Exit code 1\nE   fixture 'mailbox' not found",
        seconds=4,
    )
    yield read_file_step(
        f"{team.project_dir}/tests/conftest.py", "import pytest\n\n@pytest.fixture\ndef outbox():\n    ...\n"
    )
    yield edit_file_step(
        f"{team.project_dir}/tests/test_{module}_mail.py",
        "def test_one_mail(mailbox):",
        "def test_one_mail(outbox):",
    )
    yield bash_step(
        f"pytest tests/test_{module}_mail.py -q", "7 passed in 2.13s\n", seconds=dice.uniform(2, 5)
    )
    yield MessageStep(
        "assistant",
        f"Fixed: one mail per order even when the job is retried. I added `test_one_mail_per_retry` and linked #{issue}.",
    )
    yield EndStep()


@task
def generate_review_steps(dice: Random, team: Team) -> Iterator[Step]:
    number, module = dice.randint(700, 2600), dice.choice(team.modules)
    yield MessageStep("user", f"Please review {team.repository}#{number} before the freeze.")
    yield mcp_tool_step(
        "github",
        "get_pull_request",
        {"repo": team.repository, "number": number},
        f"{team.repository}#{number}: Cache {module} lookups for five minutes (+184 -22, 6 files)",
    )
    yield bash_step(f"gh pr diff {number}", fake_function_source(module, f"cached_{module}"), seconds=2)
    for name in ("cache.py", "views.py", "settings.py"):
        yield read_file_step(f"{team.project_dir}/{module}/{name}", fake_function_source(module, name[:-3]))
    yield bash_step("pytest -q", f"{dice.randint(300, 900)} passed in 41.77s\n", seconds=dice.uniform(30, 50))
    yield MessageStep(
        "assistant",
        f"### Review of #{number}\n\n1. **The cache key lacks the tenant.** Two tenants with one id would see each other's data. "
        "This must change before it is merged.\n2. `invalidate()` is called before the commit: a reader can fill the cache "
        "with the old value again.\n3. Five minutes is long for prices; 30 s gives the same hit rate (92 % → 89 %).\n\n"
        "The tests pass, but none of them has two tenants.",
    )
    yield PermissionStep(
        "NetworkAccess",
        f"{team.repository}#{number}",
        "Posts the review as a comment that asks for changes.",
        mcp_tool_step(
            "github",
            "add_comment",
            {"repo": team.repository, "number": number, "event": "REQUEST_CHANGES"},
            "Comment added",
        ),
        plugin="bridge.github",
    )
    yield EndStep()


@task
def generate_test_writing_steps(dice: Random, team: Team) -> Iterator[Step]:
    module = dice.choice(team.modules)
    yield MessageStep(
        "user",
        f"Coverage of `{module}` is at 61 %. Bring it above 85 % with tests that would notice a real mistake.",
    )
    yield bash_step(
        f"pytest --cov={module} --cov-report=term -q",
        f"{module}/totals.py 61%\n{module}/rules.py 58%\n",
        seconds=14,
    )
    names = ["totals", "rules", "limits", "parsing", "export"]
    yield todo_list_step(*[(f"Tests for {name}.py", "pending") for name in names])
    for name in dice.sample(names, dice.randint(3, 5)):
        yield read_file_step(f"{team.project_dir}/{module}/{name}.py", fake_function_source(module, name))
        test = f"tests/{module}/test_{name}.py"
        yield ToolCallStep(
            "Write",
            {
                "file_path": f"{team.project_dir}/{test}",
                "content": f"from {module}.{name} import {name}\n\n\ndef test_mixed_currencies_are_refused():\n"
                f"    with pytest.raises(ValueError):\n        {name}([item('EUR'), item('USD')])\n",
            },
            {"type": "create", "filePath": f"{team.project_dir}/{test}"},
            None,
            0.3,
        )
        if dice.random() < 0.3:
            yield bash_step(f"pytest {test} -q", "", error="Exit code 1\n1 failed, 4 passed", seconds=3)
            yield MessageStep(
                "assistant",
                f"The failure is real: `{name}` lets an empty currency through. I'll fix the code, not the test.",
            )
            yield edit_file_step(
                f"{team.project_dir}/{module}/{name}.py",
                "if item.currency != currency:",
                "if not item.currency or item.currency != currency:",
            )
        yield bash_step(
            f"pytest {test} -q", f"{dice.randint(4, 12)} passed in 1.9s\n", seconds=dice.uniform(1, 4)
        )
    yield bash_step(
        f"pytest --cov={module} --cov-report=term -q", f"TOTAL {dice.randint(86, 94)}%\n", seconds=16
    )
    yield MessageStep(
        "assistant",
        "Coverage is above the goal, and one real bug turned up on the way (an empty currency was accepted).",
    )
    yield EndStep()


@task
def generate_docs_update_steps(dice: Random, team: Team) -> Iterator[Step]:
    """The documentation is compared with the code and brought in line."""
    module = dice.choice(team.modules)
    yield MessageStep(
        "user", f"The README of {module} still describes last year's settings. Make it true again."
    )
    yield ToolCallStep(
        "Glob",
        {"pattern": f"{module}/**/*.md"},
        {"filenames": [f"{module}/README.md", f"{module}/docs/api.md"], "numFiles": 2},
        None,
        0.2,
    )
    yield read_file_step(
        f"{team.project_dir}/{module}/README.md",
        f"# {module}\n\n| setting | default |\n|---|---|\n| TIMEOUT | 30 |\n",
    )
    yield grep_step("os.environ", f"{team.project_dir}/{module}", [f"{module}/settings.py"])
    yield ToolCallStep(
        "WebFetch",
        {"url": "https://docs.example.org/settings", "prompt": "Which settings exist?"},
        {"code": 200, "result": "TIMEOUT, RETRIES, BASE_URL", "durationMs": 900},
        None,
        1.1,
    )
    yield edit_file_step(
        f"{team.project_dir}/{module}/README.md", "| TIMEOUT | 30 |", "| TIMEOUT | 10 |\n| RETRIES | 3 |"
    )
    yield bash_step("mdformat --check .", "", seconds=1)
    yield MessageStep(
        "assistant",
        "The table now has every setting the code reads, with its real default. Two settings that no longer exist are gone.",
    )
    yield EndStep()


@task
def generate_dependency_upgrade_steps(dice: Random, team: Team) -> Iterator[Step]:
    """One dependency goes up a version; sometimes that is where it ends."""
    package, old, new = dice.choice(
        [("httpx", "0.27", "0.28"), ("pydantic", "2.9", "2.12"), ("redis", "5.0", "6.4")]
    )
    yield MessageStep("user", f"Upgrade {package} from {old} to {new} in {team.repository}.")
    yield bash_step(
        f"pip install '{package}=={new}.*'",
        f"Successfully installed {package}-{new}.1\n",
        seconds=dice.uniform(6, 20),
    )
    broken = dice.random() < 0.4
    output = (
        failing_test_output(team.modules[0], "test_client_closes")
        if broken
        else f"{dice.randint(300, 800)} passed in 44s\n"
    )
    yield bash_step(
        "pytest -q", output, error=f"Exit code 1\n{output}" if broken else None, seconds=dice.uniform(35, 60)
    )
    if broken and dice.random() < 0.5:
        yield MessageStep(
            "assistant",
            f"{package} {new} removed an argument we pass in eleven places. I'll stop here and write it down.",
        )
        yield EndStep(
            "error", f"{package} {new} needs changes in 11 call sites; not attempted without a decision."
        )
        return
    if broken:
        yield grep_step("proxies=", team.project_dir, [f"{module}/client.py" for module in team.modules])
        for module in team.modules[:2]:
            yield edit_file_step(f"{team.project_dir}/{module}/client.py", "proxies=PROXIES", "proxy=PROXY")
        yield bash_step(
            "pytest -q", f"{dice.randint(300, 800)} passed in 46s\n", seconds=dice.uniform(35, 60)
        )
    yield PermissionStep(
        "FileWrite",
        f"{team.project_dir}/requirements.lock",
        f"Writes the lock file with {package} {new}.",
        ToolCallStep(
            "Write",
            {"file_path": f"{team.project_dir}/requirements.lock", "content": f"{package}=={new}.1\n"},
            {"type": "update"},
            None,
            0.2,
        ),
    )
    yield MessageStep("assistant", f"{package} is at {new}; the suite passes.")
    yield EndStep()


@task
def generate_alert_steps(dice: Random, team: Team) -> Iterator[Step]:
    """An alert is looked into; the remedy waits for a person."""
    module = dice.choice(team.modules)
    latency = dice.randint(900, 4200)
    yield MessageStep(
        "user",
        f"**ALERT** `{module}` p99 latency {latency} ms (threshold 400 ms) since 03:12 UTC. What is going on?",
    )
    yield mcp_tool_step(
        "grafana",
        "query_metrics",
        {"expr": f"histogram_quantile(0.99, rate({module}_seconds_bucket[5m]))"},
        f"03:10 210\n03:12 {latency}\n03:20 {latency + 80}",
        1.4,
    )
    yield mcp_tool_step(
        "grafana",
        "query_logs",
        {"query": f'{{app="{module}"}} |= "timeout"', "limit": 100},
        "connection pool exhausted (32/32), waited 3000 ms\n" * 6,
        2.2,
    )
    yield mcp_tool_step(
        "postgres-readonly",
        "query",
        {"sql": "select state, count(*) from pg_stat_activity group by 1"},
        "idle in transaction | 29\nactive | 3",
        0.6,
    )
    yield MessageStep(
        "assistant",
        "29 of 32 connections are **idle in transaction**: a job opened a transaction and waits for something outside the database.",
    )
    yield mcp_tool_step(
        "deploy",
        "list_releases",
        {"service": module},
        f"{module} v412 02:58 (current)\n{module} v411 yesterday",
        0.7,
    )
    yield PermissionStep(
        "ProcessExecution",
        f"roll back {module} to v411",
        f"v412 went out 14 minutes before the alert and holds a transaction open during an HTTP call. Rolling back frees the pool; p99 is {latency} ms.",
        mcp_tool_step("deploy", "roll_back", {"service": module, "to": "v411"}, f"{module} is at v411", 21),
        plugin="tool.terminal",
    )
    yield mcp_tool_step(
        "grafana",
        "query_metrics",
        {"expr": f"histogram_quantile(0.99, rate({module}_seconds_bucket[1m]))"},
        "03:41 230",
        1.1,
    )
    yield MessageStep(
        "assistant",
        f"Rolled back; p99 is at 230 ms again.\n\n**Cause:** v412 of {module} calls the tax service inside the transaction.\n**Next:** move the call out; I opened an issue.",
    )
    yield EndStep()


@task
def generate_data_question_steps(dice: Random, team: Team) -> Iterator[Step]:
    table = dice.choice(team.modules)
    yield MessageStep(
        "user", f"How did {table} develop over the last eight weeks, and why the dip in week 5?"
    )
    yield mcp_tool_step(
        "postgres-readonly", "describe_table", {"table": table}, "week date, amount numeric, region text", 0.4
    )
    rows = "\n".join(f"week {week} | {dice.randint(8000, 15000)}" for week in range(1, 9))
    yield mcp_tool_step(
        "postgres-readonly",
        "query",
        {"sql": f"select week, sum(amount) from {table} group by 1 order by 1"},
        rows,
        dice.uniform(1, 9),
    )
    yield mcp_tool_step(
        "postgres-readonly",
        "query",
        {"sql": f"select region, sum(amount) from {table} where week = 5 group by 1"},
        "north | 1210\nsouth | 6400",
        dice.uniform(1, 5),
    )
    yield bash_step("python chart.py --out week5.png", "wrote week5.png (1200x600)\n", seconds=3)
    yield MessageStep(
        "assistant",
        "The dip is **one region**: the north delivered no files on two days (see the load log). Without those days week 5 is 3 % above week 4.\n\n- source: `warehouse."
        + table
        + "`\n- rows read: 48,210",
    )
    yield EndStep()


@task
def generate_release_steps(dice: Random, team: Team) -> Iterator[Step]:
    """A release is prepared; parts of it are handed to child sessions."""
    version = f"{dice.randint(3, 9)}.{dice.randint(0, 20)}.0"
    yield MessageStep(
        "user", f"Prepare release {version} of {team.repository}: notes, upgrade check, last reviews."
    )
    yield todo_list_step(
        ("Collect changes", "in_progress"),
        ("Review open pull requests", "pending"),
        ("Check the docs", "pending"),
        ("Tag", "pending"),
    )
    yield bash_step(
        "git log --oneline v2..HEAD",
        "\n".join(
            f"{dice.randrange(16**7):07x} {word} {module}"
            for word in ("Add", "Fix", "Speed up")
            for module in team.modules
        ),
    )
    yield DelegationStep("reviewer", f"Review the open pull requests that are labelled {version}.")
    yield DelegationStep("librarian", f"Check that the docs describe what {version} does.")
    yield MessageStep(
        "assistant",
        f"Both are back. Release notes for **{version}**:\n\n- {team.modules[0]}: totals are rounded per line\n- {team.modules[1]}: retries no longer send twice\n- docs: settings table rewritten",
    )
    yield PermissionStep(
        "ProcessExecution",
        f"git tag v{version} && git push --tags",
        "Everything on the list is done; the tag starts the release pipeline.",
        bash_step(f"git tag v{version} && git push --tags", f" * [new tag] v{version}\n", seconds=4),
    )
    yield EndStep()
