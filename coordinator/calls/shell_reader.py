"""The simple commands of a shell text, through blocks, pipes, substitutions and the programs that start others.

The reader walks the syntax tree once. It follows the working directory (`cd x && …`), joins each word as the shell
does, and reads the shell texts that a command starts (`sh -c`, `eval`, a heredoc) with the same budget. Everything that
may run counts as run: both branches of an `if`, the body of a function, both sides of `||`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from coordinator.calls.commands import Redirection, SimpleCommand
from coordinator.calls.embedded_scripts import iterate_embedded_shell_scripts
from coordinator.calls.paths import resolve_absolute_path
from coordinator.calls.shell_parser import (
    MAX_SHELL_DEPTH,
    MAX_SYNTAX_DEPTH,
    NOT_SHELL,
    TOO_DEEP,
    ShellBudget,
    UnreadableShell,
    parse_shell_tree_within_budget,
)
from coordinator.calls.shell_words import ShellWord, WordReader
from coordinator.calls.wrappers import (
    FOREIGN_SHELLS,
    SHELL_VALUES,
    SHELLS,
    WRAPPERS,
    Wrapper,
    find_inline_code_options,
    find_wrapped_command,
    skip_wrapper_subcommand,
    split_clustered_options,
)

_WORDS = frozenset(
    {
        "word",
        "number",
        "raw_string",
        "ansi_c_string",
        "string",
        "concatenation",
        "translated_string",
        "array",
        "simple_expansion",
        "expansion",
        "command_substitution",
        "process_substitution",
        "brace_expression",
        "arithmetic_expansion",
        "variable_name",
        "extglob_pattern",
        "regex",
        "special_variable_name",
        "command_name",
    }
)
# Blocks of which it is not certain whether they run, or how often.
_CONDITIONAL = frozenset(
    {
        "if_statement",
        "while_statement",
        "for_statement",
        "c_style_for_statement",
        "case_statement",
        "function_definition",
    }
)
_SUBSHELLS = frozenset({"subshell", "command_substitution", "process_substitution"})
_CONTINUED = re.compile(rb"(\\\r?\n)+")
FIND_COMMANDS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
BLOCK_WORDS = frozenset({"{", "(", "((", "[[", "while", "until", "if", "for", "case", "select"})
LONGEST_REASON_PART = 60  # characters


@dataclass(frozen=True, slots=True)
class _Input:
    """What a command reads from its standard input. `text` is None where that is not known."""

    text: str | None
    origin: str  # in words: "a pipe"


_Interpreter = Callable[[SimpleCommand, _Input | None, int], None]


@dataclass(slots=True)
class ShellReading:
    """What was read: the commands in their order, and why parts could not be read."""

    commands: list[SimpleCommand] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


class ShellReader:
    """Reads the shell texts of one call. `folder` is where they run, None where that is not known."""

    def __init__(self, folder: str | None, budget: ShellBudget | None = None) -> None:
        self.reading = ShellReading()
        self._budget = budget or ShellBudget()
        self._folder = folder
        self._shell_depth = 0
        self._source = b""
        self._words = WordReader(self._source, self._budget, self._walk_substitution_node)
        self._output: str | None = None  # of the last command, where it is known
        self._interpreters: dict[str, _Interpreter] = {
            **dict.fromkeys(WRAPPERS, self._interpret_wrapper),
            **dict.fromkeys(SHELLS, self._interpret_shell_invocation),
            **dict.fromkeys(FOREIGN_SHELLS, self._record_foreign_shell_as_unreadable),
            **dict.fromkeys(("cd", "chdir", "pushd", "popd"), self._interpret_cd_command),
            **dict.fromkeys(("source", "."), self._record_source_command),
            **dict.fromkeys(("trap", "alias"), self._interpret_trap_or_alias),
            **dict.fromkeys(("find", "fd", "fdfind"), self._interpret_find_exec),
            "eval": self._interpret_eval,
            "coproc": self._interpret_coproc,
            **dict.fromkeys(("at", "batch", "newgrp"), self._interpret_script_on_stdin),
        }

    # --- texts --------------------------------------------------------------------------------------------

    def record_script_commands(self, text: str) -> None:
        """Read a shell text. What cannot be read of it is noted, and the rest read all the same."""
        if self._shell_depth >= MAX_SHELL_DEPTH:
            self._add_unreadable_reason(f"a shell text, because {TOO_DEEP}")
            return
        if "\0" in text:  # a shell leaves it out, or ends the text there
            self._add_unreadable_reason("a shell text, because it holds a NUL")
        outer = self._source, self._words, self._output
        self._source = text.encode("utf-8", "replace")
        self._words = WordReader(self._source, self._budget, self._walk_substitution_node)
        self._shell_depth += 1
        try:
            root = parse_shell_tree_within_budget(self._source, self._budget)
            if root.has_error:
                self._add_unreadable_reason(f"a shell text, because {NOT_SHELL}")
            self._walk_command_sequence(root, 0)
        except UnreadableShell as problem:
            self._add_unreadable_reason(f"a shell text, because {problem}")
        finally:
            self._source, self._words, self._output = outer
            self._shell_depth -= 1

    def collect_command_from_arguments(self, words: Sequence[ShellWord]) -> None:
        """Read a command that is given as words, without a shell."""
        try:
            self._record_command_and_its_children(SimpleCommand(tuple(words), folder=self._folder), None, 0)
        except UnreadableShell as problem:
            self._add_unreadable_reason(f"a command, because {problem}")

    def _add_unreadable_reason(self, reason: str) -> None:
        if reason not in self.reading.unreadable:
            self.reading.unreadable.append(reason)

    # --- blocks -------------------------------------------------------------------------------------------

    def _walk_syntax_node(self, node: Node, depth: int, stdin: _Input | None = None) -> None:
        if depth > MAX_SYNTAX_DEPTH:
            raise UnreadableShell(TOO_DEEP)
        kind = node.type
        if kind == "command":
            self._read_command(node, stdin, depth)
        elif kind == "redirected_statement":
            self._interpret_redirected_statement(node, stdin, depth)
        elif kind == "pipeline":
            self._walk_pipeline(node.children, stdin, depth)
        elif kind == "list":
            self._walk_and_or_list(node, stdin, depth)
        elif kind in _SUBSHELLS:
            self._walk_in_subshell(node, stdin, depth)
        elif kind in _CONDITIONAL:
            self._walk_conditional_block(node, stdin, depth)
        elif kind in {"declaration_command", "unset_command"}:
            self._record_declaration_command(node, depth)
        elif kind == "variable_assignment":
            self._record_simple_command(
                SimpleCommand((), (self._parse_variable_assignment(node, depth),), folder=self._folder)
            )
        elif kind not in {"comment", "heredoc_start", "heredoc_end"}:
            self._walk_command_sequence(node, depth, stdin)

    def _list_checked_child_nodes(self, node: Node) -> list[Node]:
        """Return the parts of a node. The text between them must be blank, or the whole counts as unreadable.

        The grammar passes over some texts (a quoted blank, a lone `-` before a heredoc), which the shell does not.
        """
        children = node.children
        self._budget.consume_syntax_nodes(len(children))
        end = node.start_byte
        for child in children:
            if child.start_byte > end:
                gap = _CONTINUED.sub(b"", self._source[end : child.start_byte]).strip()
                if gap and gap != b"-":
                    self._add_unreadable_reason(f"a shell text, because {NOT_SHELL}")
            end = child.end_byte
        return children

    def _walk_command_sequence(self, node: Node, depth: int, stdin: _Input | None = None) -> None:
        children = self._list_checked_child_nodes(node)
        for child in children:
            if child.is_named:
                self._walk_syntax_node(child, depth + 1, stdin)

    def _walk_substitution_node(self, node: Node, depth: int) -> None:
        """Read the commands in a substitution, or below another part of a word."""
        self._walk_syntax_node(node, depth)

    def _walk_and_or_list(self, node: Node, stdin: _Input | None, depth: int) -> None:
        children = node.children
        self._budget.consume_syntax_nodes(len(children))
        is_alternative = False
        for child in children:
            if not child.is_named:
                is_alternative = child.type == "||"
            elif is_alternative:
                self._walk_maybe_skipped_command(child, stdin, depth)
            else:
                self._walk_syntax_node(child, depth + 1, stdin)

    def _walk_conditional_block(self, node: Node, stdin: _Input | None, depth: int) -> None:
        children = node.children
        self._budget.consume_syntax_nodes(len(children))
        for child in children:
            if child.is_named:
                self._walk_maybe_skipped_command(child, stdin, depth)

    def _walk_maybe_skipped_command(self, node: Node, stdin: _Input | None, depth: int) -> None:
        """Walk what may run or not; where it changes the working directory, that is not known any more."""
        before = self._folder
        self._walk_syntax_node(node, depth + 1, stdin)
        if self._folder != before:
            self._folder = None

    def _walk_in_subshell(self, node: Node, stdin: _Input | None, depth: int) -> None:
        before, output = self._folder, self._output
        self._walk_command_sequence(node, depth, stdin)
        self._folder, self._output = before, output

    def _walk_pipeline(self, nodes: Iterable[Node], stdin: _Input | None, depth: int) -> None:
        before = self._folder
        for node in nodes:
            if not node.is_named or node.type == "comment":
                continue
            self._output = None
            self._walk_syntax_node(node, depth + 1, stdin)
            output = self._output if node.type in {"command", "redirected_statement"} else None
            stdin = _Input(output, "a pipe")
            self._folder = before
        self._output = stdin.text if stdin is not None else None

    # --- commands -----------------------------------------------------------------------------------------

    def _interpret_redirected_statement(self, node: Node, stdin: _Input | None, depth: int) -> None:
        children = self._list_checked_child_nodes(node)
        body = next((child for child in children if not child.type.endswith("_redirect")), None)
        redirects = [child for child in children if child.type.endswith("_redirect")]
        redirections: list[Redirection] = []
        extra: list[Node] = []
        after: list[tuple[str, list[Node]]] = []
        for redirect in redirects:
            stdin = self._read_redirection_and_stdin(redirect, redirections, extra, after, depth) or stdin
        if body is not None and body.type == "command":
            self._read_command(body, stdin, depth, redirections, extra)
        else:
            if redirections:
                self._record_simple_command(
                    SimpleCommand((), redirections=tuple(redirections), folder=self._folder)
                )
            if body is not None:
                self._walk_syntax_node(body, depth + 1, stdin)
        for kind, nodes in after:
            if kind == "|":
                self._walk_pipeline(nodes, _Input(self._output, "a pipe"), depth)
            else:
                for statement in nodes:
                    self._walk_maybe_skipped_command(statement, None, depth)

    def _read_redirection_and_stdin(
        self,
        node: Node,
        redirections: list[Redirection],
        extra: list[Node],
        after: list[tuple[str, list[Node]]],
        depth: int,
    ) -> _Input | None:
        """Read one redirection; return what it gives to the command's standard input, None where nothing.

        A heredoc may be followed, on its own line, by more words, redirections and commands: they go into `extra`,
        `redirections` and `after`.
        """
        children = node.children
        self._budget.consume_syntax_nodes(len(children))
        if node.type == "herestring_redirect":
            redirect_words = self._words.parse_words_of_nodes(
                [child for child in children if child.type in _WORDS], depth
            )
            return _Input(redirect_words[0].text if len(redirect_words) == 1 else None, "a here-string")
        if node.type == "heredoc_redirect":
            return self._read_heredoc_and_following_nodes(node, redirections, extra, after, depth)
        operator = next((child.type for child in children if not child.is_named), ">")
        is_input = operator.startswith("<") and ">" not in operator
        targets = [child for child in children if child.type in _WORDS]
        for target in targets:
            for word in self._words.parse_words_of_nodes([target], depth):
                is_descriptor = (
                    operator in {">&", "<&"} and word.text is not None and word.text.rstrip("-").isdigit()
                )
                if not is_descriptor:
                    redirections.append(Redirection(operator, word))
        is_process = any(target.type == "process_substitution" for target in targets)
        return _Input(None, "a substitution" if is_process else "") if is_input else None

    def _read_heredoc_and_following_nodes(
        self,
        node: Node,
        redirections: list[Redirection],
        extra: list[Node],
        after: list[tuple[str, list[Node]]],
        depth: int,
    ) -> _Input:
        start, text, is_literal, is_indented = "", "", False, False
        for child in node.children:
            kind = child.type
            if kind == "<<-":
                is_indented = True
            elif kind == "heredoc_start":
                written = self._words.decode_source_span(child.start_byte, child.end_byte)
                start = re.sub(r"\\(.)|[\"']", r"\1", written)
                is_literal = start != written
            elif kind == "heredoc_body":
                text = self._words.decode_source_span(child.start_byte, child.end_byte)
                if not is_literal:
                    self._walk_syntax_node(child, depth + 1)
            elif kind == "pipeline":
                after.append(("|", child.children))
            elif kind in {"file_redirect", "herestring_redirect", "heredoc_redirect"}:
                self._read_redirection_and_stdin(child, redirections, extra, after, depth + 1)
            elif kind in _WORDS:
                extra.append(child)
            elif child.is_named and kind != "heredoc_end":
                after.append(("&&", [child]))
        lines = [line.lstrip("\t") if is_indented else line for line in text.split("\n")]
        if start in lines[:-1] or not start:
            # The shell ends the text at its first such line, whatever the parser says.
            raise UnreadableShell(NOT_SHELL)
        return _Input("\n".join(lines), "a heredoc")

    def _read_command(
        self,
        node: Node,
        stdin: _Input | None,
        depth: int,
        redirections: list[Redirection] | None = None,
        extra: list[Node] | None = None,
    ) -> None:
        children = self._list_checked_child_nodes(node)
        assignments: list[tuple[str, ShellWord]] = []
        command_redirections: list[Redirection] = []
        groups: list[list[Node]] = []
        for child in children:
            if child.type == "variable_assignment":
                assignments.append(self._parse_variable_assignment(child, depth))
            elif child.type.endswith("_redirect"):
                stdin = self._read_redirection_and_stdin(child, command_redirections, [], [], depth) or stdin
            elif child.is_error:
                self._walk_syntax_node(child, depth + 1)
            elif groups and self._is_part_of_previous_word(groups[-1][-1], child):
                groups[-1].append(child)
            else:
                groups.append([child])
        groups += [[child] for child in extra or ()]
        command_words = [word for group in groups for word in self._words.parse_words_of_nodes(group, depth)]
        command = SimpleCommand(
            tuple(command_words),
            tuple(assignments),
            (*command_redirections, *(redirections or ())),
            self._folder,
            span=(node.start_byte, node.end_byte) if self._shell_depth == 1 else None,
        )
        self._output = None
        self._record_command_and_its_children(command, stdin, depth)
        self._output = predict_command_output(command, stdin)

    def _is_part_of_previous_word(self, previous: Node, node: Node) -> bool:
        """Say whether a node belongs to the word before it: nothing is between, or a continued line."""
        gap = self._source[previous.end_byte : node.start_byte]
        return not gap or _CONTINUED.fullmatch(gap) is not None

    def _parse_variable_assignment(self, node: Node, depth: int) -> tuple[str, ShellWord]:
        name, value = "", ShellWord("")
        for child in node.children:
            if child.type in {"variable_name", "subscript"} and not name:
                name = self._words.decode_source_span(child.start_byte, child.end_byte)
                if child.type == "subscript":
                    self._walk_syntax_node(child, depth + 1)
            elif child.is_named:
                assigned_words = self._words.parse_words_of_nodes([child], depth + 1)
                value = (
                    assigned_words[0]
                    if len(assigned_words) == 1
                    else ShellWord(None, reason=f"the value of {name}")
                )
        return name, value

    def _record_declaration_command(self, node: Node, depth: int) -> None:
        """Read `export A=1`, `declare`, `local`, `readonly`, `unset`."""
        children = node.children
        self._budget.consume_syntax_nodes(len(children))
        declared_words, assignments = [ShellWord(children[0].type if children else "export")], []
        for child in children[1:]:
            if child.type == "variable_assignment":
                assignments.append(self._parse_variable_assignment(child, depth))
            elif child.is_named:
                declared_words += self._words.parse_words_of_nodes([child], depth)
        self._record_simple_command(
            SimpleCommand(tuple(declared_words), tuple(assignments), folder=self._folder)
        )

    def _record_simple_command(self, command: SimpleCommand) -> None:
        self._budget.consume_syntax_nodes(1)
        self.reading.commands.append(command)
        if command.unreadable:
            self._add_unreadable_reason(command.unreadable)
        before = self._folder
        for text in iterate_embedded_shell_scripts(command):
            self._collect_joined_script_commands([text])
        self._folder = before

    # --- what a command starts ----------------------------------------------------------------------------

    def _record_command_and_its_children(
        self, command: SimpleCommand, stdin: _Input | None, depth: int
    ) -> None:
        """Note a command, and all that it starts."""
        if depth > MAX_SYNTAX_DEPTH:
            raise UnreadableShell(TOO_DEEP)
        if not command.words:
            self._record_simple_command(command)
            return
        first, program = command.words[0], command.program
        if program is None:
            reason = first.reason or f"the word {first.shown_text[:LONGEST_REASON_PART]!r}"
            self._record_simple_command(replace(command, unreadable=f"{reason} as a program"))
            return
        name = program.lower()
        interpret = self._interpreters.get(name)
        if interpret is not None:
            interpret(command, stdin, depth)
        elif (options := find_inline_code_options(name)) is not None:
            self._record_interpreter_command(command, options, stdin, depth)
        else:
            self._record_simple_command(command)

    def _record_interpreter_command(
        self, command: SimpleCommand, options: frozenset[str], stdin: _Input | None, depth: int
    ) -> None:
        """Note an interpreter; `python -m pip install` is `pip install` as well."""
        module = python_module_words_or_empty(command) if "-c" in options else ()
        has_code = not module and is_given_inline_code(command.arguments, options, stdin)
        self._record_simple_command(
            replace(
                command,
                has_code=has_code,
                is_transparent=bool(module),
                is_wrapper=bool(module),
                started_words=len(module),
            )
        )
        if module:
            self._record_command_and_its_children(
                replace(command, words=module, assignments=(), redirections=()), stdin, depth + 1
            )

    def _interpret_cd_command(self, command: SimpleCommand, _stdin: _Input | None, _depth: int) -> None:
        self._update_working_folder(command.program or "", command.arguments)
        self._record_simple_command(command)

    def _interpret_eval(self, command: SimpleCommand, _stdin: _Input | None, _depth: int) -> None:
        self._record_simple_command(replace(command, unreadable="eval, which runs the text that it is given"))
        self._collect_joined_script_commands(command.arguments)

    def _interpret_coproc(self, command: SimpleCommand, stdin: _Input | None, depth: int) -> None:
        """Read the command that runs next to the shell. The grammar knows no block there, nor the name before it."""
        texts = [word.text for word in command.arguments[:2]]
        if any(text in BLOCK_WORDS for text in texts):
            self._record_simple_command(replace(command, unreadable="the block of a coproc"))
        else:
            self._interpret_wrapper(command, stdin, depth)

    def _interpret_script_on_stdin(self, command: SimpleCommand, stdin: _Input | None, _depth: int) -> None:
        """Read the shell text that a program runs from its standard input."""
        if stdin is None or stdin.text is None:
            reason = (
                f"what {command.program} reads from {stdin.origin} and runs" if stdin and stdin.origin else ""
            )
            self._record_simple_command(replace(command, unreadable=reason))
            return
        self._record_simple_command(command)
        before = self._folder
        self.record_script_commands(stdin.text)
        self._folder = before

    def _record_source_command(self, command: SimpleCommand, _stdin: _Input | None, _depth: int) -> None:
        self._record_simple_command(
            replace(command, unreadable=unknown_script_reason_or_empty(command.arguments[:1]))
        )

    def _interpret_trap_or_alias(self, command: SimpleCommand, _stdin: _Input | None, _depth: int) -> None:
        self._record_simple_command(command)
        self._collect_trap_and_alias_commands(command.program or "", command.arguments)

    def _record_foreign_shell_as_unreadable(
        self, command: SimpleCommand, _stdin: _Input | None, _depth: int
    ) -> None:
        self._record_simple_command(
            replace(command, unreadable=f"what {command.program} runs: its language is not read")
        )

    def _interpret_wrapper(self, command: SimpleCommand, stdin: _Input | None, depth: int) -> None:
        name = command.lowercase_program_name
        wrapper = WRAPPERS[name]
        wrapped = find_wrapped_command(wrapper, command.arguments)
        if wrapped is None:
            self._record_simple_command(
                replace(command, unreadable=hidden_command_reason_or_empty(wrapper, command))
            )
            return
        is_text = len(wrapped.words) == 1 and wrapper.adds_words and has_inner_whitespace(wrapped.words[0])
        is_known_command = not (wrapper.is_joined or wrapper.adds_words or wrapped.scripts)
        self._record_simple_command(
            replace(
                command,
                is_transparent=wrapper.is_transparent,
                is_wrapper=True,
                started_words=len(wrapped.words) if is_known_command else 0,
                assignments=(*command.assignments, *wrapped.assignments),
            )
        )
        before = self._folder
        if wrapper.is_remote:
            self._folder = None
        elif wrapped.folder is not None:
            self._folder = resolve_folder_argument(self._folder, wrapped.folder)
        wrapped_words = list(wrapped.words)
        if wrapped_words and (wrapper.is_joined or is_text):
            self._collect_joined_script_commands(wrapped_words)
        elif wrapped_words:
            if wrapper.adds_words:
                wrapped_words = self._build_words_with_xargs_input(name, command, wrapped_words)
            self._record_command_and_its_children(
                replace(
                    command,
                    words=tuple(wrapped_words),
                    assignments=tuple(wrapped.assignments),
                    redirections=(),
                    folder=self._folder,
                ),
                None if wrapper.adds_words else stdin,
                depth + 1,
            )
        for script in wrapped.scripts:
            self._collect_joined_script_commands([script])
        self._folder = before

    def _build_words_with_xargs_input(
        self, name: str, command: SimpleCommand, words: list[ShellWord]
    ) -> list[ShellWord]:
        """Return the words of a command together with those that `xargs` and `parallel` put into it."""
        unknown = ShellWord(None, reason=f"what {name} adds", is_split=True)
        end = next((place for place, word in enumerate(words) if word.text in {":::", "::::"}), len(words))
        words = words[:end]
        placeholder = find_xargs_placeholder(name, command.arguments)
        if placeholder is None or not any(placeholder in (word.text or "") for word in words):
            return [*words, unknown]
        return [
            ShellWord(None, (word.text or "").partition(placeholder)[0], unknown.reason)
            if placeholder in (word.text or "")
            else word
            for word in words
        ]

    def _interpret_shell_invocation(self, command: SimpleCommand, stdin: _Input | None, depth: int) -> None:
        """Read what `bash -c text`, `bash file` and `bash` with a standard input run."""
        rest = list(command.arguments)
        takes_text = reads_input = False
        while rest:
            text = rest[0].text
            if text is None or len(text) < 2 or text[0] not in "-+":
                break
            rest = rest[1:]
            if text == "--":
                break
            if text in SHELL_VALUES:
                rest = rest[1:]
            elif not text.startswith("--"):
                takes_text = takes_text or "c" in text
                reads_input = reads_input or "s" in text
                if text.endswith(("o", "O")):
                    rest = rest[1:]
        if takes_text:
            self._record_simple_command(replace(command, is_transparent=True, is_wrapper=True))
            if not rest:
                return
            before = self._folder
            self._collect_joined_script_commands(rest[:1])
            self._folder = before
        elif rest and not reads_input:
            self._record_simple_command(
                replace(command, unreadable=unknown_script_reason_or_empty(rest[:1]), has_code=True)
            )
        elif stdin is not None and stdin.text is not None:
            self._record_simple_command(replace(command, is_transparent=True, is_wrapper=True))
            before = self._folder
            self.record_script_commands(stdin.text)
            self._folder = before
        elif stdin is not None and stdin.origin:
            program = command.program
            self._record_simple_command(
                replace(command, unreadable=f"what {program} reads from {stdin.origin} and runs")
            )
        else:
            self._record_simple_command(replace(command, has_code=True))

    def _interpret_find_exec(self, command: SimpleCommand, _stdin: _Input | None, depth: int) -> None:
        """Read the commands that `find -exec` and `fd -x` start, with the folders that they search in their place."""
        self._record_simple_command(command)
        find_words = list(command.arguments)
        starts = FIND_COMMANDS if command.program == "find" else {"-x", "--exec", "-X", "--exec-batch"}
        roots = list(list_find_search_folders(command))
        while find_words:
            word, find_words = find_words[0], find_words[1:]
            if word.text not in starts:
                continue
            inner: list[ShellWord] = []
            while find_words and find_words[0].text not in {";", "+"}:
                inner.append(find_words[0])
                find_words = find_words[1:]
            filled = [
                part
                for inner_word in inner
                for part in (
                    roots if inner_word.text == "{}" else [mark_find_placeholder_word_unknown(inner_word)]
                )
            ]
            if command.program != "find" and not any(word.text == "{}" for word in inner):
                filled += roots
            if filled:
                self._record_command_and_its_children(
                    replace(command, words=tuple(filled), assignments=(), redirections=()), None, depth + 1
                )

    def _collect_joined_script_commands(self, words: Sequence[ShellWord]) -> None:
        """Read words that are one shell text together."""
        if any(word.text is None for word in words):
            reason = next(word.reason for word in words if word.text is None)
            self._add_unreadable_reason(f"a shell text that is made of {reason}")
            self.reading.commands.append(
                SimpleCommand((ShellWord(None, reason=reason),), folder=self._folder, unreadable=reason)
            )
            return
        if words:
            self.record_script_commands(" ".join(word.text or "" for word in words))

    def _collect_trap_and_alias_commands(self, name: str, arguments: Sequence[ShellWord]) -> None:
        """Read what `trap` and `alias` bind: it runs later."""
        before = self._folder
        if name == "trap":
            texts = [word for word in arguments[:1] if word.text is None or not word.text.startswith("-")]
            texts = texts if len(arguments) > 1 else []
        else:
            texts = [
                word._replace(text=word.text.partition("=")[2]) if word.text is not None else word
                for word in arguments
                if word.text is None or "=" in word.text
            ]
        for text in texts:
            self._collect_joined_script_commands([text])
        self._folder = before

    def _update_working_folder(self, program: str, arguments: Sequence[ShellWord]) -> None:
        operands = [
            word
            for word in arguments
            if word.text is None or not word.text.startswith("-") or word.text == "-"
        ]
        if not operands:
            self._folder = "~" if program == "cd" else None
        elif operands[0].text == "-" or program == "popd":
            self._folder = None
        else:
            self._folder = resolve_folder_argument(self._folder, operands[0])


def resolve_folder_argument(folder: str | None, word: ShellWord) -> str | None:
    """Return the folder that a word names; None where it is not known."""
    return (
        None
        if word.text is None or word.is_pattern
        else resolve_absolute_path(folder, word.text, word.is_home)
    )


def hidden_command_reason_or_empty(wrapper: Wrapper, command: SimpleCommand) -> str:
    """Return why it is not known what a wrapper starts that was to say it behind `--`; "" where it starts nothing."""
    rest = (
        skip_wrapper_subcommand(wrapper, list(command.arguments)) if wrapper.commands else command.arguments
    )
    texts = [word.text or "" for word in rest or ()]
    is_hidden = wrapper.needs_dashes and "--" not in texts and any(text[:1] != "-" for text in texts)
    return f"what {command.program} starts" if is_hidden else ""


def has_inner_whitespace(word: ShellWord) -> bool:
    return word.text is not None and any(char.isspace() for char in word.text.strip())


def unknown_script_reason_or_empty(words: Sequence[ShellWord]) -> str:
    """Return why what a shell reads from a file is not known, for a file that a substitution makes; "" else."""
    return f"{words[0].reason} as a script" if words and words[0].text is None else ""


def is_given_inline_code(
    arguments: Sequence[ShellWord], options: frozenset[str], stdin: _Input | None
) -> bool:
    """Say whether an interpreter is given a program as text, by an option or its standard input."""
    for word in arguments:
        text = word.text
        if text is None:
            return True
        if not text.startswith("-"):
            return text in options
        if text in options or text == "-":
            return True
        if not text.startswith("--") and any(option in options for option in split_clustered_options(text)):
            return True
    return stdin is not None


def python_module_words_or_empty(command: SimpleCommand) -> tuple[ShellWord, ...]:
    """Return the module that `python -m` runs, with its arguments; nothing where none is run so."""
    for index, word in enumerate(command.arguments):
        if word.text is None or not word.text.startswith("-") or word.text == "-c":
            return ()
        if word.text == "-m":
            return command.arguments[index + 1 :]
    return ()


def find_xargs_placeholder(name: str, arguments: Sequence[ShellWord]) -> str | None:
    """Return the text that `xargs -I` or `parallel` replaces."""
    for index, word in enumerate(arguments):
        text = word.text or ""
        if text == "-I" and index + 1 < len(arguments):
            return arguments[index + 1].text or None
        if text.startswith(("-I", "--replace")):
            return text.removeprefix("-I").removeprefix("--replace").removeprefix("=") or "{}"
        if text == "-i":
            return "{}"
    return "{}" if name == "parallel" else None


def mark_find_placeholder_word_unknown(word: ShellWord) -> ShellWord:
    if word.text is None or "{}" not in word.text:
        return word
    return ShellWord(None, word.text.partition("{}")[0], "what find adds")


def list_find_search_folders(command: SimpleCommand) -> list[ShellWord]:
    """Return the folders that `find` searches."""
    roots = []
    for word in command.arguments:
        text = word.text
        if command.program != "find":
            continue
        if text is not None and (text.startswith(("-", "(", "!")) and text not in {"-H", "-L", "-P"}):
            break
        if text not in {"-H", "-L", "-P"}:
            roots.append(word)
    return roots or [ShellWord(".")]


def predict_command_output(command: SimpleCommand, stdin: _Input | None) -> str | None:
    """Return what a command writes to its standard output, where that is certain: `echo` and `cat` of known words."""
    texts = [word.text for word in command.arguments]
    if any(text is None for text in texts) or any(redirect.is_write for redirect in command.redirections):
        return None
    known_texts = [text for text in texts if text is not None]
    if command.program == "echo" and not any(text.startswith("-") or "\\" in text for text in known_texts):
        return " ".join(known_texts) + "\n"
    if (
        command.program == "printf"
        and len(known_texts) == 1
        and "%" not in known_texts[0]
        and "\\" not in known_texts[0]
    ):
        return known_texts[0]
    if command.program == "cat" and not known_texts and stdin is not None:
        return stdin.text
    return None
