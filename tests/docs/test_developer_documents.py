"""The developers' documents name files, functions and tests that exist, and leave none out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from coordinator.models.permissions import RequestStatus
from coordinator.notifications.channels import Kind
from coordinator.sessions.agent_programs import AGENT_TITLES
from tests.docs import modules
from tests.docs.documents import FOLDER
from tests.house.test_directions import rooms
from tests.served import ROOT

pytestmark = pytest.mark.one_engine

ARCHITECTURE, CONTRIBUTING, HOW_TO = (
    (FOLDER / "develop" / f"{name}.md").read_text() for name in ("architecture", "CONTRIBUTING", "howto")
)
# A step names the file, as a link, and then the function or Class.method in it.
STEP = re.compile(r"\[`([^`]+)`\]\([^)]+\)\s+`([\w.]+)`")
STEPS = STEP.findall(ARCHITECTURE)
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|README\.md)`")
# Lists of how-tos in which a file need not stand, though it has the word: tests of other things, and made-up data.
NOT_OF_A_DIALECT = {"tests/docs/test_developer_documents.py"}


def section(title: str) -> str:
    return HOW_TO.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def paths_in(text: str) -> set[str]:
    return {path for path in PATH.findall(text) if not re.search(r"[A-Z]{4}", path.replace("README", ""))}


def files_with(*words: str, folders: tuple[str, ...] = ("coordinator", "dashboard")) -> set[str]:
    """Return the Python files that hold all of the words."""
    return {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if all(word in path.read_text() for word in words)
    }


def named_statuses(path: str) -> set[str]:
    """Return the statuses of requests that a module names; "values" and "choices" where it names all."""
    text = (ROOT / path).read_text()
    name = "Status" if "RequestStatus as Status" in text else "RequestStatus"
    members = set(re.findall(rf"\b{name}\.([A-Z_]+|values|choices)\b", text))
    return members | {"all", "of", "them"} if members & {"values", "choices"} else members


def names_in(path: str) -> set[str]:
    """Return the functions and classes of a module, methods as Class.method."""
    text = (ROOT / path).read_text()
    if path.endswith(".js"):
        return set(re.findall(r"^(?:async )?function (\w+)", text, re.MULTILINE))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, kinds):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, kinds)}
    return found


@pytest.mark.parametrize(("path", "name"), STEPS)
def test_every_step_of_a_flow_is_a_function_that_exists(path: str, name: str) -> None:
    assert name in names_in(path)


def test_each_flow_has_its_steps() -> None:
    flows = (
        "A hook, from request to answer",
        "A gateway call",
        "A server's question during a call",
        "A page's live update",
    )
    for title in flows:
        text = ARCHITECTURE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
        steps = re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:]
        assert len(steps) >= 10
        assert [step for step in steps if not STEP.search(step)] == []


@pytest.mark.parametrize("path", sorted(paths_in(HOW_TO)))
def test_every_file_of_a_how_to_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_how_to_of_a_dialect_names_each_file_that_knows_a_small_one() -> None:
    named = paths_in(section("Add an agent dialect"))
    knowing = files_with("goose", folders=("coordinator", "dashboard", "tests")) - NOT_OF_A_DIALECT
    knowing = {path for path in knowing if not path.startswith("tests/data/")}
    assert knowing - named == set()
    assert "goose" in AGENT_TITLES


def test_the_how_to_of_a_status_names_each_file_that_uses_them() -> None:
    """A file that compares with one or two of them is found by its members' names."""
    named = paths_in(section("Add a status of permission requests"))
    using = {path for path in files_with("RequestStatus") if len(named_statuses(path)) >= 3}
    assert using - named == set()
    assert len(using) >= 5
    assert RequestStatus.values


def test_the_how_to_of_a_channel_names_each_file_that_knows_one() -> None:
    named = paths_in(section("Add a notification channel"))
    knowing = files_with("Kind.WEBHOOK") | files_with("Kind.MAIL")
    assert knowing <= named | {"coordinator/actions/notifications/push.py"}
    assert Kind.values


def test_the_how_to_of_a_look_names_each_family() -> None:
    named = paths_in(section("Add a tool's look"))
    assert files_with("TOOLS", folders=("dashboard/looks",)) - named == set()


def test_the_how_to_of_a_page_names_each_file_that_knows_a_small_one() -> None:
    """The brake's page has a rail entry, forms and a help page."""
    named = paths_in(section("Add a page"))
    knowing = files_with("brakes:home") | files_with("brakes:put-on", folders=("coordinator", "tests/guards"))
    outside_its_own = {path for path in knowing if "brakes" not in Path(path).with_suffix("").parts}
    assert outside_its_own - named == set()
    assert (ROOT / "dashboard/frame/urls.py").exists()


def test_the_how_to_of_a_card_names_each_file_that_draws_one() -> None:
    named = paths_in(section("Change what a request's card says or offers"))
    drawing = files_with("build_permission_request_headline(") | files_with("class DecisionRights")
    assert drawing - named == set()


def test_the_how_to_of_an_endpoint_names_each_file_that_knows_a_small_one() -> None:
    """The runs' endpoints take a session, have scopes, and write."""
    named = paths_in(section("Add a REST endpoint"))
    knowing = files_with("runs.router") | files_with("def build_scoped_key_auth")
    knowing |= files_with("def get_request_key_identity", folders=("coordinator/api",))
    assert knowing - {"coordinator/api/runs.py"} <= named
    assert "tests/guards/declared.txt" in named


def test_the_how_to_of_a_gateway_refusal_names_each_file_that_denies() -> None:
    named = paths_in(section("Add a refusal at the MCP gateway"))
    denying = files_with(
        "is_tool_blocked_by_definition_change(", folders=("coordinator/mcp", "coordinator/edge")
    )
    denying |= files_with("def record_agent_refusal_at_server") | files_with(
        "gateway_refusals.record_agent_refusal_at_server"
    )
    denying |= files_with("definition changed since this was asked")
    assert denying - named == set()


def test_the_how_to_of_a_check_names_the_list_of_checks() -> None:
    named = paths_in(section("Add a check of the doctor"))
    assert files_with("def iterate_all_doctor_checks(address") <= named
    assert "tests/operator/test_doctor.py" in named


def test_the_table_of_tests_names_every_package_and_folders_that_exist() -> None:
    table = CONTRIBUTING.split("\n## Which tests for which package\n", 1)[1].split("\n## ", 1)[0]
    packages = set(re.findall(r"`coordinator/([\w/]+)`", table)) | set(re.findall(r"`(dashboard)`", table))
    assert rooms() <= packages
    for folder in re.findall(r"tests/\w+", table):
        assert (ROOT / folder).is_dir(), folder


def test_the_list_of_modules_says_what_their_docstrings_say() -> None:
    """`python -m tests.docs.modules` writes it."""
    assert modules.PAGE.read_text() == modules.build_page()


def test_every_module_says_what_it_holds() -> None:
    assert [str(path) for path in modules.list_modules() if not modules.describe_module(path)] == []


def test_there_are_six_commands() -> None:
    table = CONTRIBUTING.split("\n## The six commands\n", 1)[1].split("\n`pytest` uses", 1)[0]
    assert len(re.findall(r"^\| `", table, re.MULTILINE)) == 6


def test_the_hooks_before_a_commit_are_readable() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["id"] for hook in hooks] == [
        "ruff",
        "ruff-format",
        "djangofmt",
        "mypy",
        "migrations",
        "documents",
    ]
