"""The documents are whole: every link leads somewhere, each page has its place in the lists, the README is short."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.help.pages import PAGES, docs_readme_help_list_markdown, readme_help_list_markdown
from tests.docs.documents import DOCUMENTS, FOLDER, anchors, links, prose
from tests.served import ROOT

pytestmark = pytest.mark.one_engine

# Files of agents' people, which agents read.
NOT_OF_THE_REPOSITORY = {"CLAUDE.md", "AGENTS.md", "SKILL.md", "agent.system-prompt.md", "capability.text.md"}
GENERATED = re.compile(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 15_000


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    for link in links(document):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (document.parent / file).resolve() if file else document
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def texts_for_readers() -> Iterator[tuple[str, str]]:
    """Yield each Python file with each of its comments and docstrings."""
    for folder in ("coordinator", "dashboard", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            if ".md" not in text and "§" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    yield name_of(path), ast.get_docstring(node) or ""
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    yield name_of(path), token.string


def test_no_comment_cites_a_document_that_is_not_here() -> None:
    """Documents are named by their path, or by their name alone beside the file."""
    cited = [
        (name, document)
        for name, text in texts_for_readers()
        for document in re.findall(r"(?<![\w*/.-])[\w./-]+\.md\b", text)
        if document not in NOT_OF_THE_REPOSITORY
        and not (ROOT / document).exists()
        and not (ROOT / name).parent.joinpath(document).exists()
    ]
    assert cited == []
    assert [
        (name, text) for name, text in texts_for_readers() if "§" in text and "transparency" not in name
    ] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_two_headings_have_one_anchor(document: Path) -> None:
    assert len(set(anchors(document))) == len(anchors(document))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_line_is_longer_than_the_others_but_in_tables_and_code(document: Path) -> None:
    too_long = [
        line
        for line in GENERATED.sub("", prose(document)).splitlines()
        if len(line) > 120 and not line.lstrip().startswith(("|", "<", "!["))
    ]
    assert too_long == []


@pytest.mark.parametrize(
    ("document", "mark", "text"),
    [
        ("README.md", "pages", readme_help_list_markdown()),
        (".docs/README.md", "index", f"\n{docs_readme_help_list_markdown()}\n"),
    ],
)
def test_the_lists_of_pages_name_each_page(document: str, mark: str, text: str) -> None:
    shown = (
        (ROOT / document).read_text().partition(f"<!-- {mark} -->\n")[2].partition(f"\n<!-- /{mark} -->")[0]
    )
    assert shown == text, "python -m dashboard.help.pages prints it"


def test_every_file_of_the_folder_is_a_page() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} - {"README"} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_begins_with_its_title_and_what_a_reader_does_with_it(name: str) -> None:
    first, empty, lead = PAGES[name].read_markdown().split("\n", 2)
    assert (first, empty) == (f"# {PAGES[name].title}", "")
    assert lead[0].isupper()
