"""The one table of what reads foreign input in the threads that answer pages and requests, and how much it may.

Whatever arrives over the network is read by one of these entries first, or was measured by one when it arrived. Each
has a budget that holds whatever the input says: a size, a depth, a count, or a child process that the kernel ends
(coordinator.sandbox). tests/hostile/test_foreign_input.py feeds each its worst input, and
tests/house/test_foreign_parsers.py fails for a module that imports a library of `PARSER_LIBRARIES`, or
decodes JSON, and is not named here.
"""

from __future__ import annotations

from dataclasses import dataclass

# Libraries that read a language, an archive, a picture or a signed text; most are not used, and shall not be unseen.
PARSER_LIBRARIES = frozenset(
    {
        "ast",
        "authlib",
        "bs4",
        "bz2",
        "cbor2",
        "configparser",
        "csv",
        "defusedxml",
        "difflib",
        "email",
        "google.protobuf",
        "gzip",
        "html.parser",
        "html5lib",
        "http.cookies",
        "joserfc",
        "jsonschema",
        "jwt",
        "lxml",
        "lzma",
        "markdown",
        "markdown_it",
        "marshal",
        "mcp",
        "msgpack",
        "nh3",
        "opentelemetry",
        "pickle",
        "PIL",
        "plistlib",
        "pygments",
        "re2",
        "referencing",
        "shelve",
        "tarfile",
        "toml",
        "tomli",
        "tomllib",
        "tree_sitter",
        "tree_sitter_bash",
        "webauthn",
        "xml",
        "yaml",
        "zipfile",
        "zlib",
    }
)


@dataclass(frozen=True, slots=True)
class ForeignParser:
    """One way in. `entry` is module:function; `modules` import its libraries, or decode JSON, under its budget."""

    name: str
    entry: str
    budget: str
    modules: tuple[str, ...] = ()


def declare_foreign_parser(name: str, entry: str, budget: str, modules: str = "") -> ForeignParser:
    return ForeignParser(name, entry, budget, tuple(modules.split()))


FOREIGN_PARSERS: tuple[ForeignParser, ...] = (
    # Bodies, before anything reads them
    declare_foreign_parser(
        "request body",
        "coordinator.edge.http.bodies:BodyReservation.read_body",
        "bytes and seconds by URL and sender (edge.limits)",
    ),
    declare_foreign_parser(
        "gzip",
        "coordinator.edge.http.bodies:decompress_gzip",
        "BodyLimit.unpacked bytes",
        "coordinator.edge.http.bodies",
    ),
    declare_foreign_parser(
        "JSON's depth and weight",
        "coordinator.lib.json_bounds:require_json_bounds",
        "100 levels, BodyLimit.becomes bytes once decoded",
        "coordinator.lib.json_bounds",
    ),
    # Programs' requests
    declare_foreign_parser(
        "JSON body of the API",
        "coordinator.api.application:JsonParser.parse_body",
        "as JSON's depth and weight",
        "coordinator.api.application",
    ),
    declare_foreign_parser(
        "fields of a chat message", "coordinator.api.chat:parse_body_json", "as JSON's depth and weight"
    ),
    declare_foreign_parser(
        "one event",
        "coordinator.edge.http.validation_errors:parse_new_event",
        "the body's; 100 levels",
        "coordinator.edge.http.validation_errors",
    ),
    declare_foreign_parser(
        "batch of events",
        "coordinator.edge.ingest.events:parse_each_event_or_error",
        "the body's; 10,000 events, 20,000 lines",
        "coordinator.edge.ingest.events",
    ),
    declare_foreign_parser(
        "question about access",
        "coordinator.edge.policy.access_check:parse_access_body",
        "the body's (2 MiB)",
        "coordinator.edge.policy.access_check",
    ),
    declare_foreign_parser(
        "hook of an agent",
        "coordinator.dialects.hooks:decode_hook_rejecting_duplicates",
        "the body's; 100 levels",
        "coordinator.dialects.hooks",
    ),
    declare_foreign_parser(
        "a runner's updates",
        "coordinator.edge.ingest.driven_sessions:decode_runner_body",
        "the body's; 100 levels",
        "coordinator.edge.ingest.driven_sessions",
    ),
    declare_foreign_parser(
        "OTLP in protobuf",
        "coordinator.dialects.otlp_wire:estimate_decoded_bytes",
        "BodyLimit.becomes bytes once decoded, counted on the wire",
        "coordinator.dialects.otlp_wire coordinator.actions.audit.decision_events",
    ),
    declare_foreign_parser(
        "OTLP in JSON",
        "coordinator.edge.ingest.otlp:parse_session_reports_and_omissions",
        "as JSON's depth and weight; 100 levels",
    ),
    declare_foreign_parser(
        "parameters' JSON Schema",
        "coordinator.runs.parameters:require_valid_parameters",
        "64 KiB of schema; 5,000 steps here, else a child process with 0.25 s",
        "coordinator.runs.parameters coordinator.runs.schemas coordinator.runs.schema_jobs",
    ),
    # MCP
    declare_foreign_parser(
        "message of an MCP client",
        "coordinator.mcp.protocol.messages:parse_mcp_message",
        "the body's (8 MiB); 100 levels",
        "coordinator.mcp.protocol.messages coordinator.edge.gateway.all_servers coordinator.edge.gateway.local_calls"
        " coordinator.edge.gateway.approved_calls coordinator.edge.gateway.upstream_calls"
        " coordinator.edge.gateway.tasks",
    ),
    declare_foreign_parser(
        "answer of an MCP server",
        "coordinator.edge.gateway.upstreams:is_response_to_request_id",
        "16 MiB each, 192 MiB in all by caller and by server; 100 levels, 64 MiB once decoded",
        "coordinator.edge.gateway.upstreams coordinator.edge.gateway.upstream_sessions coordinator.edge.gateway.relay"
        " coordinator.mcp.gateway.outputs coordinator.mcp.gateway.server_tasks coordinator.edge.hooks.notes"
        " coordinator.mcp.gateway.cached_results coordinator.mcp.gateway.limited_results"
        " coordinator.mcp.gateway.injection_signs"
        " coordinator.mcp.gateway.server_requests",
    ),
    declare_foreign_parser(
        "question of an MCP server to a person",
        "coordinator.mcp.gateway.elicitation:parse_server_elicitation_or_none",
        "64 KiB; 30 fields, 100 choices of each, 20,000 characters of a text",
        "coordinator.mcp.gateway.elicitation",
    ),
    declare_foreign_parser(
        "events of an MCP server",
        "coordinator.client.sse:EventSplitter.feed",
        "16 MiB and 10,000 lines an event",
    ),
    declare_foreign_parser(
        "tools of an MCP server",
        "coordinator.mcp.gateway.listing:parse_listing_page_unless_error",
        "the answer's; 2,000 tools, 128 KiB each, 8 MiB stored of one server",
        "coordinator.mcp.gateway.listing coordinator.mcp.gateway.tool_search coordinator.edge.gateway.listings",
    ),
    declare_foreign_parser(
        "pasted list of tools",
        "coordinator.mcp.servers.tools:parse_pasted_tool_listing",
        "2,000,000 characters; as JSON's depth and weight",
    ),
    declare_foreign_parser(
        "tools of a program that is started",
        "coordinator.mcp.servers.discovery:start_server_and_list_tools",
        "4 MB, 20 pages and 20 seconds, one at a time",
        "coordinator.mcp.servers.stdio",
    ),
    declare_foreign_parser(
        "answer of an authorization server",
        "coordinator.mcp.protocol.oauth:fetch_raw_oauth_answer",
        "256 KiB and 10 seconds",
        "coordinator.mcp.protocol.oauth coordinator.mcp.protocol.oauth_discovery",
    ),
    # Addresses and headers
    declare_foreign_parser(
        "query of an address",
        "coordinator.edge.http.messages:parse_query_string",
        "the server's 8 KiB of a request's line",
    ),
    declare_foreign_parser("cookies", "django.http.cookie:parse_cookie", "the server's 64 KiB of headers"),
    declare_foreign_parser("Last-Event-ID", "coordinator.live.streams:last_event_id_or_none", "18 digits"),
    declare_foreign_parser(
        "words to search for",
        "coordinator.search.text:parse_search_terms",
        "12 terms, each a quoted phrase of the index",
    ),
    # Patterns and masks
    declare_foreign_parser(
        "pattern of a rule",
        "coordinator.policy.rules.tool_rules:compile_rule_pattern",
        "RE2: time in proportion to the text; 4 MiB of program",
        "coordinator.policy.rules.tool_rules coordinator.policy.rules.rule_checks coordinator.policy.rules.marks"
        " coordinator.actions.policy.marks",
    ),
    declare_foreign_parser(
        "shell text of a call",
        "coordinator.calls.shell_parser:parse_shell_tree_within_budget",
        "64 KiB, 30,000 nodes and 0.05 s of a call's shell texts together; 60 levels, 6 shells in each other",
        "coordinator.calls.shell_parser coordinator.calls.shell_words coordinator.calls.shell_reader",
    ),
    declare_foreign_parser(
        "secrets in a text",
        "coordinator.secrets.masking:mask_secrets_in_value",
        "RE2: time in proportion to the text, which arrived within its body's budget",
        "coordinator.secrets.masking coordinator.secrets.shapes coordinator.secrets.masked_code",
    ),
    # What pages show, in a child process
    declare_foreign_parser(
        "Markdown and HTML",
        "dashboard.text.markdown:render_markdown",
        "a child process with 1 s each",
        "dashboard.rendering.jobs",
    ),
    declare_foreign_parser(
        "code to colour", "dashboard.text.markdown:highlight_code", "a child process with 0.2 s each"
    ),
    declare_foreign_parser(
        "two texts to compare",
        "dashboard.text.diffs:line_diff_opcodes_or_none",
        "2,000 lines; 400 pairs here, else a child process with 0.2 s",
        "dashboard.text.diffs",
    ),
    declare_foreign_parser(
        "size of a picture",
        "coordinator.chat.picture_sizes:read_image_size",
        "its first bytes; of a JPEG so many segments",
    ),
    declare_foreign_parser(
        "picture",
        "coordinator.chat.thumbnails:require_or_make_thumbnail",
        "60 million pixels, 60 MiB; a child process with 5 s",
        "coordinator.chat.picture_jobs",
    ),
    # Forms
    declare_foreign_parser(
        "JSON in a form",
        "dashboard.mcp.access_sheet:deserialize_grant_edits",
        "the form's 2 MiB; the decoder's own depth",
        "dashboard.admin.forms dashboard.admin.rows dashboard.approvals.verdicts dashboard.mcp.access_sheet"
        " dashboard.mcp.argument_form dashboard.mcp.views.shown_tools dashboard.rules.question",
    ),
    declare_foreign_parser(
        "edited input",
        "coordinator.actions.sessions.tool_calls:parse_edited_tool_input",
        "the form's 2 MiB; 100 levels",
    ),
    # Single sign-on
    declare_foreign_parser(
        "answer and token of the provider",
        "coordinator.identity.openid.tokens:decode_signed_token",
        "MOST_BYTES of an answer and 8 seconds, one at a time",
        "coordinator.identity.openid.fetching coordinator.identity.openid.tokens"
        " coordinator.identity.openid.provider coordinator.identity.openid.flow",
    ),
    declare_foreign_parser(
        "a device's answer with a passkey",
        "coordinator.identity.passkeys:verify_passkey_and_get_counter",
        "16 KiB of JSON, of which a part is CBOR; attestations without certificates of makers",
        "coordinator.identity.passkeys",
    ),
    # What was read within one of the budgets above when it was stored, sealed or sent by a program of ours
    declare_foreign_parser(
        "stored JSON",
        "coordinator.models.fields:decode_stored_json",
        "what its row holds: its writer's budget; the decoder's own depth",
        "coordinator.models.fields coordinator.search.paths coordinator.sessions.recent coordinator.sessions.titles"
        " coordinator.sessions.timeline.reading coordinator.transparency.entries coordinator.live.recorded_stream"
        " coordinator.lib.worker_metrics coordinator.notifications.push dashboard.search.file_views"
        " coordinator.dialects.codex_transcripts coordinator.mcp.gateway.states",
    ),
    declare_foreign_parser(
        "frames of a child process",
        "coordinator.sandbox.frames:read_frame",
        "1 MB of facts, 16 MiB of answer",
        "coordinator.sandbox.frames",
    ),
    declare_foreign_parser(
        "report of the program that sends notifications",
        "coordinator.notifications.apprise_channel:run_apprise_child",
        "the output of a program of ours, in its time",
        "coordinator.notifications.apprise_channel coordinator.notifications.apprise_child",
    ),
)
