"""The agents' own tools, what they do, and which field of their input says it: one table for all dialects.

A tool that is not in the table (an MCP server's, a new one) is read by the names of its fields, and nobody knows what
it does with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.calls.programs import DELETE, LIST, READ, TOUCH, WRITE, split_option_names

# The names under which inputs name a thing, whichever tool it is.
COMMAND_FIELDS = frozenset({"command", "cmd", "script"})
FOLDER_FIELDS = frozenset({"cwd", "workdir", "working_directory", "working_dir", "directory"})
PATH_FIELDS = frozenset(
    {
        "file_path",
        "notebook_path",
        "path",
        "filePath",
        "filepath",
        "absolute_path",
        "dir_path",
        "source",
        "files",
        "file_paths",
        "exclude",
        "target_file",
        "relative_workspace_path",
        "old_path",
        "new_path",
        "destination",
        "dest",
        "target",
        "source_path",
        "target_path",
        "from_path",
        "to_path",
        "file",
        "folder",
        "dir",
        "uri",
        "image_path",
        "output_path",
        "target_directory",
        "root",
    }
)
GLOB_FIELDS = frozenset({"glob", "include", "include_pattern", "includePattern", "paths"})
ADDRESS_FIELDS = frozenset({"url", "uri", "urls", "endpoint", "base_url", "href", "link"})
PATCH_FIELDS = frozenset({"patch", "patchText", "patch_text", "input", "diff"})
# Fields that name neither a command nor a path nor an address, of the tools in the table, by what they say.
# About the call, and how long and where its agent waits for it: the call does the same with or without them.
NOTE_FIELDS = split_option_names(
    """
    description explanation justification timeout timeout_ms timeoutMs timeout_secs timeout_seconds
    yield_time_ms max_output_tokens run_in_background is_background isBackground background initial_wait async
    """
)
# What is written into a file.
CONTENT_FIELDS = split_option_names(
    """
    content contents file_text old_string new_string old_str new_str oldString newString oldText newText
    before after edits new_source cell_type cell_id edit_mode replace_all replaceAll expected_replacements
    allow_multiple insert_line instruction ai_proposed_content modified_by_user
    """
)
FILE_PART_FIELDS = split_option_names(
    "offset limit pages view_range start_line end_line startLine endLine depth"
)
PAGE_FIELDS = split_option_names(
    "prompt format max_length start_index raw"
)  # how a page is read, and what is asked of it
MATCH_FIELDS = split_option_names(
    "output_mode head_limit offset multiline case_sensitive -i -n -A -B -C context fixed_strings"
)
SEARCH_FIELDS = split_option_names("pattern type query recursive ignore respect_git_ignore")
# Kinds of files that a search may be limited to, and that hold no credentials by their nature.
SOURCE_TYPES = split_option_names(
    """
    py python js ts tsx jsx rust go java kotlin scala swift c cpp h cs ruby php perl lua r julia elixir erlang haskell
    css scss less html vue svelte md markdown rst tex sql sh make cmake
    """
)
PLAIN_FIELDS = NOTE_FIELDS | CONTENT_FIELDS | FILE_PART_FIELDS | PAGE_FIELDS | MATCH_FIELDS | SEARCH_FIELDS


# Fields that lift a guard of the agent itself.
GUARD_LIFTING_FIELDS = split_option_names(
    """
    dangerouslyDisableSandbox disable_sandbox disableSandbox with_escalated_permissions sandbox_permissions
    require_escalated escalated_permissions elevated additional_permissions required_permissions
    """
)


@dataclass(frozen=True, slots=True)
class Tool:
    """What a tool does, and how its input is read."""

    kind: str  # the kind by which a rule may speak of it (policy.rules.tool_kinds)
    use: str = ""  # what it does with the paths in its input
    is_command: bool = False
    has_path_pattern: bool = False  # its `pattern` is one of paths (`Glob`)
    searches_here: bool = False  # without a path it means the working directory
    has_address: bool = False


def map_names_to_tool(names: str, tool: Tool) -> dict[str, Tool]:
    return dict.fromkeys(names.split(), tool)


# Of each agent that has a dialect, in its present and its known earlier versions; `think` and the like do nothing.
TOOLS: dict[str, Tool] = {
    **map_names_to_tool(
        "Bash Monitor PowerShell bash powershell run_shell_command Shell shell exec_command local_shell"
        " developer__shell monitor background_process",
        Tool("command", is_command=True),
    ),
    **map_names_to_tool(
        "Read NotebookRead read read_file read_many_files view view_image developer__read_image",
        Tool("read", READ),
    ),
    **map_names_to_tool(
        "Write Edit MultiEdit NotebookEdit StrReplace apply_patch write_file replace write edit multiedit patch create"
        " str_replace_editor notebook_edit developer__write developer__edit developer__text_editor",
        Tool("write", WRITE),
    ),
    **map_names_to_tool("Delete Move", Tool("write", DELETE)),
    **map_names_to_tool(
        "Grep grep grep_search search_file_content SemanticSearch", Tool("search", READ, searches_here=True)
    ),
    **map_names_to_tool("Glob glob", Tool("search", LIST, has_path_pattern=True, searches_here=True)),
    **map_names_to_tool("LS list list_directory developer__tree", Tool("search", LIST, searches_here=True)),
    **map_names_to_tool("WebFetch webfetch web_fetch", Tool("fetch", has_address=True)),
    **map_names_to_tool("WebSearch websearch web_search google_web_search", Tool("web-search")),
}
UNKNOWN_TOOL = Tool("", TOUCH)
POWERSHELL_TOOLS = frozenset({"PowerShell", "powershell"})
POSIX_TOOLS = frozenset({"Bash", "bash"})  # a POSIX shell on every system
