"""The two schema documents, read into facts (tests/schema/facts.py). What is not understood is an error."""

from __future__ import annotations

import re
from pathlib import Path

from tests.schema.facts import Fact

FOLDER = Path(__file__).parent.parent / "data" / "schema"
COORDINATOR = (FOLDER / "agent-coordinator.md").read_text()
CLOTOCORE = (FOLDER / "clotocore.md").read_text()
# One constraint of a column, as either document writes it.
CONSTRAINT = re.compile(
    r"(?P<auto>PRIMARY KEY AUTOINCREMENT)|(?P<key>PRIMARY KEY)|(?P<part>PK \(composite\))"
    r"|(?P<not_null>NOT NULL)|(?P<unique>UNIQUE)"
    r"|DEFAULT (?P<default>'[^']*'|NULL|CURRENT_TIMESTAMP|\d+)"
    r"|CHECK IN \((?P<check>[^)]*)\)"
    r"|(?:FK →|REFERENCES) (?P<parent>\w+) ?\((?P<parent_column>\w+)\)"
    r"(?: ON DELETE (?P<on_delete>CASCADE|SET NULL))?"
)


class NotUnderstood(Exception):
    """A part of a document that this reader would otherwise skip."""


def column_facts(table: str, place: int, name: str, type_: str, constraints: str) -> set[Fact]:
    """Return the facts of one column; the part of a composite key is ("key part", table, place, name)."""
    facts: set[Fact] = {("column", table, place, name, type_)}
    rest = constraints.strip()
    while rest:
        match = CONSTRAINT.match(rest)
        if match is None:
            raise NotUnderstood(f"{table}.{name}: {rest}")
        rest = rest[match.end() :].lstrip(" ,")
        found = match.groupdict()
        if found["auto"]:
            facts |= {("primary key", table, name), ("autoincrement", table)}
        elif found["key"]:
            facts.add(("primary key", table, name))
        elif found["part"]:
            facts.add(("key part", table, place, name))
        elif found["not_null"]:
            facts.add(("not null", table, name))
        elif found["unique"]:
            facts.add(("unique", table, name))
        elif found["default"]:
            facts.add(("default", table, name, found["default"]))
        elif found["check"]:
            facts.add(("check", table, name, *re.findall(r"'([^']*)'", found["check"])))
        else:
            action = found["on_delete"] or "NO ACTION"
            facts.add(("foreign key", table, name, found["parent"], found["parent_column"], action))
    return facts


def joined_keys(facts: set[Fact]) -> set[Fact]:
    """Return the facts with the parts of composite keys joined into one key each."""
    parts: dict[str, list[str]] = {}
    for _, table, _, name in sorted(fact for fact in facts if fact[0] == "key part"):
        parts.setdefault(table, []).append(name)
    keys = {("primary key", table, *names) for table, names in parts.items()}
    return {fact for fact in facts if fact[0] != "key part"} | keys


def sections(document: str) -> dict[str, str]:
    """Return the text under each heading of the third level."""
    parts = re.split(r"^#{2,3} (.+)$", document, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str, *header: str) -> list[list[str]]:
    """Return the rows of the Markdown tables with this header; cells lose their backticks."""
    found: list[list[str]] = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, flags=re.MULTILINE):
        lines = [
            [cell.strip() for cell in line.strip("|\n").split("|")]
            for line in block.splitlines(keepends=True)
        ]
        if lines[0] == list(header):
            if any(len(line) != len(header) for line in lines):
                raise NotUnderstood(block)
            found += [[cell.strip("`") for cell in line] for line in lines[2:]]
    return found


def clotocore_facts() -> set[Fact]:
    """Return the facts of ClotoCore's document: tables of columns, lines of indexes, one trigger."""
    facts: set[Fact] = set()
    for table, text in sections(CLOTOCORE).items():
        for place, (name, type_, constraints, _) in enumerate(
            rows(text, "Column", "Type", "Constraints", "Description")
        ):
            facts |= column_facts(table, place, name, type_, constraints)
        for line in re.findall(r"^\*\*Index(?:es)?:\*\* (.+)$", text, flags=re.MULTILINE):
            facts |= {("index", table, *listed.strip("()").split(", ")) for listed in quoted(line, ",")}
        for name in re.findall(r"^\*\*Trigger:\*\* `(\w+)` .* on INSERT\.$", text, flags=re.MULTILINE):
            facts.add(("trigger", table, name, "AFTER INSERT"))
    return joined_keys(facts)


def coordinator_facts() -> set[Fact]:
    """Return the facts of the coordinator's document: its SQL, and its lists of indexes."""
    facts: set[Fact] = set()
    for title, text in sections(COORDINATOR).items():
        for sql in re.findall(r"CREATE TABLE .*?\n\);", text, flags=re.DOTALL):
            table, found = table_facts(sql)
            if title != f"{table.capitalize()} Table":
                raise NotUnderstood(title)
            facts |= found
            listed = re.search(r"\*\*Indexes:\*\*\n((?:- .+\n)+)", text)
            for line in listed[1].splitlines() if listed else ():
                facts |= index_facts(table, line)
    return facts


def index_facts(table: str, line: str) -> set[Fact]:
    """Return the fact of one line of the coordinator's lists of indexes; the primary key's is no index."""
    match = re.fullmatch(r"- (Primary key index|Index|Composite index) on `\(?([^`()]+)\)?`.*", line)
    if match is None:
        raise NotUnderstood(line)
    return set() if match[1] == "Primary key index" else {("index", table, *match[2].split(", "))}


def table_facts(sql: str) -> tuple[str, set[Fact]]:
    """Return a CREATE TABLE's name and its facts: one column or one foreign key a line."""
    first, *lines, _ = sql.splitlines()
    table = first.removeprefix("CREATE TABLE ").removesuffix(" (")
    facts: set[Fact] = set()
    for place, line in enumerate(part.strip().removesuffix(",") for part in lines):
        outer = re.fullmatch(r"FOREIGN KEY \((\w+)\) (REFERENCES .+)", line)
        key = re.fullmatch(r"PRIMARY KEY \((.+)\)", line)
        if outer:
            facts |= {f for f in column_facts(table, 0, outer[1], "", outer[2]) if f[0] == "foreign key"}
        elif key:
            facts.add(("primary key", table, *key[1].split(", ")))
        else:
            name, type_, *rest = line.split(" ", 2)
            facts |= column_facts(table, place, name, type_, " ".join(rest))
    return table, facts


def quoted(line: str, separator: str) -> list[str]:
    """Return the parts of a line that consists of backticked parts and separators, and of nothing else."""
    if re.fullmatch(rf"`[^`]+`(?:{separator} `[^`]+`)*", line) is None:
        raise NotUnderstood(line)
    return re.findall(r"`([^`]+)`", line)


def history() -> list[tuple[str, str]]:
    """Return the rows of the migration history: file name without its date and ending, and description."""
    return [
        (re.sub(r"^\d{14}_|\.sql$", "", file), description)
        for file, description in rows(CLOTOCORE, "File", "Description")
    ]
