"""Labels of timeline events that are not calls or messages: starts, ends, turns, model requests.

An event of an unknown type is labelled with its type as words; its details have the type as it was sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from coordinator.actions.sessions import notes
from coordinator.actions.sessions.transcripts import READ_FROM
from coordinator.sessions.reports import REWIND
from coordinator.sessions.timeline import StoredValue, TimelineEvent
from coordinator.usage.amounts import MOST_TOKENS

MOST_OF_A_NOTE = 300  # characters in the timeline's line
MOST_OF_A_NAME = 100  # characters of an unknown type
_METHOD = re.compile(r'"(?:method|sessionUpdate)":\s{0,9}"([\w/.:-]{1,100})"')
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_MILESTONES = {
    "session_start": ("play", "Session started", "busy"),
    "run_start": ("play", "Run started", "busy"),
    "api_error": ("st-warning", "The model did not answer", "bad"),
    "unreadable_hook": ("st-warning", "A hook could not be read", "bad"),
    "hooks_lost": ("st-warning", "Some earlier hooks could not be recorded", "bad"),
    "SubagentStart": ("play", "Sub-agent started", "calm"),
    "SubagentStop": ("st-check", "Sub-agent ended", "calm"),
    "PreCompact": ("st-info", "The conversation is being compacted", "calm"),
    "PreCompress": ("st-info", "The conversation is being compacted", "calm"),
    "PostCompact": ("st-info", "Conversation compacted", "calm"),
    "turn_aborted": ("st-stop", "Turn ended: interrupted", "calm"),
    "managed_settings_resolved": ("st-info", "The agent read its managed settings", "calm"),
    "permission_mode_changed": ("st-info", "Permission mode changed", "calm"),
    "mcp_server_connection": ("st-info", "Connection to an MCP server", "calm"),
}


# Events about an agent's environment: the label, and the fields of which the first present one is added.
_NAMED = {
    "ConfigChange": ("Settings changed", ("file_path", "source")),
    "DirectoryAdded": ("A folder was added to what it may use", ("directory",)),
    "CwdChanged": ("Working folder changed", ("new_cwd",)),
    "InstructionsLoaded": ("Instructions loaded", ("file_path", "file")),
    "PostModelSwitch": ("Model changed", ("to_model",)),
    "TaskCreated": ("Task created", ("task_subject", "task_id")),
    "TaskCompleted": ("Task completed", ("task_subject", "task_id")),
    "TeammateIdle": ("A teammate waits for work", ("teammate_name",)),
    "Elicitation": ("An MCP server asks", ("message", "mcp_server_name")),
    "ElicitationResult": ("An MCP server was answered", ("action",)),
    "UserPromptExpansion": ("Command loaded", ("command_name",)),
}


def describe_event_with_subject(event: TimelineEvent) -> str:
    """Return the label of an event in `_NAMED`, with the first words of its subject."""
    event_text, fields = _NAMED[event.event_type]
    input_value = event.tool_input.value if event.tool_input else None
    input_fields = input_value if isinstance(input_value, dict) else {}
    about = next(
        (text for name in fields if isinstance(text := input_fields.get(name), str) and text.strip()), ""
    )
    about = " ".join(about[:MOST_OF_A_NOTE].split())
    return f"{event_text}: {about}" if about else event_text


def describe_model_request(event: TimelineEvent) -> str:
    """Return the model that was called, and its input and output tokens."""
    text_parts = [f"Asked {event.model or 'a model'}"]
    if event.tokens_in is not None:
        text_parts.append(f"{event.tokens_in:,} tokens in")
    if event.tokens_out is not None:
        text_parts.append(f"{event.tokens_out:,} out")
    return " · ".join(text_parts)


def describe_compaction(event: TimelineEvent) -> str:
    """Return that the conversation was compacted, whether automatically, and the tokens before."""
    input_value = event.tool_input.value if event.tool_input else None
    input_fields = input_value if isinstance(input_value, dict) else {}
    text_parts = ["Conversation compacted"]
    if input_fields.get("trigger") in ("auto", "manual"):
        text_parts.append("automatically" if input_fields["trigger"] == "auto" else "by a person")
    before = input_fields.get("preTokens")
    if isinstance(before, int) and not isinstance(before, bool) and 0 < before <= MOST_TOKENS:
        text_parts.append(f"{before:,} tokens before")
    return " · ".join(text_parts)


def describe_rewind(event: TimelineEvent) -> str:
    """Return that a person went back to an earlier message, and how many messages were dropped."""
    input_value = event.tool_input.value if event.tool_input else None
    messages = input_value.get("messages") if isinstance(input_value, dict) else None
    if not isinstance(messages, int) or isinstance(messages, bool) or not 0 < messages <= MOST_TOKENS:
        return "Rewound to an earlier message"
    noun = "message" if messages == 1 else "messages"
    return f"Rewound to an earlier message · {messages:,} {noun} left behind"


# How a turn ended, in the Agent Client Protocol's words. A normal end is not mentioned.
_ENDS = {
    "cancelled": "stopped",
    "max_tokens": "the model's token limit was reached",
    "max_turn_requests": "its limit of model requests was reached",
    "refusal": "the model refused",
}


def describe_turn_end(event: TimelineEvent) -> str:
    end_text = _ENDS.get(event.reason or "")
    return f"Turn ended: {end_text}" if end_text else "Turn ended"


def new_mode_or_empty(event: TimelineEvent) -> str:
    input_value = event.tool_input.value if event.tool_input else None
    return str(input_value.get("to", "")) if isinstance(input_value, dict) else ""


def describe_transcript_origin(facts: StoredValue | None) -> str:
    """Return the origin of an imported history, with Claude Code's version and the branch."""
    transcript_facts = facts.value if facts is not None and isinstance(facts.value, dict) else {}
    version, branch = transcript_facts.get("version"), transcript_facts.get("gitBranch")
    text_parts = ["Read from a transcript", f"Claude Code {version}" if version else "", str(branch or "")]
    return " · ".join(word for word in text_parts if word)


def describe_session_note(event: TimelineEvent) -> str:
    """Return the author of a note, and its beginning."""
    input_value = event.tool_input.value if event.tool_input else None
    text = str(input_value.get("text", "")) if isinstance(input_value, dict) else ""
    shown_note = text if len(text) <= MOST_OF_A_NOTE else f"{text[:MOST_OF_A_NOTE]}…"
    return f"Note from {event.reason or 'somebody'}: {' '.join(shown_note.split())}"


def describe_agent_protocol_message(event: TimelineEvent) -> str:
    """Return the name of a message of the agent's own protocol, as words."""
    input_value = event.tool_input.value if event.tool_input else None
    input_fields = input_value if isinstance(input_value, dict) else {}
    name = input_fields.get("method") or input_fields.get("sessionUpdate")
    if not isinstance(name, str):
        match = _METHOD.search(str(input_fields.get("message", ""))[:2_000])
        name = match[1] if match else ""
    return f"Message of the agent: {identifier_to_words(name).lower()}" if name else "Message of the agent"


def identifier_to_words(name: str) -> str:
    """Return an identifier as words: `_auth/status_update` becomes "Auth status update"."""
    spaced_words = " ".join(
        word if word.isupper() else word.lower() for word in _WORD.findall(name[:MOST_OF_A_NAME])
    )
    return f"{spaced_words[:1].upper()}{spaced_words[1:]}" or name[:MOST_OF_A_NAME]


# Icon, function for the label, and tone; an empty tone depends on whether the event has an error.
_WORDS: dict[str, tuple[str, Callable[[TimelineEvent], str], str]] = {
    "turn_end": ("st-check", describe_turn_end, ""),
    "mode_changed": ("st-info", lambda event: f"Mode changed: {new_mode_or_empty(event)}", "calm"),
    "agent_message": ("st-info", describe_agent_protocol_message, ""),
    "agent_failed": ("st-warning", lambda _: "The agent failed", "bad"),
    "model_request": ("st-dot", describe_model_request, ""),
    "compaction": ("st-info", describe_compaction, "calm"),
    REWIND: ("st-back", describe_rewind, "calm"),
    "permission_request": ("approvals", lambda event: f"Asked for permission: {event.tool_name}", "warn"),
    **dict.fromkeys(_NAMED, ("st-info", describe_event_with_subject, "calm")),
    READ_FROM: ("st-info", lambda event: describe_transcript_origin(event.tool_input), "calm"),
}


# Events of Signalbox itself. The same type from an agent is not labelled so, because anybody may send any
# type.
_OF_OURS: dict[str, tuple[str, Callable[[TimelineEvent], str], str]] = {
    notes.WRITTEN: ("chat", describe_session_note, "calm"),
    notes.GIVEN: ("st-check", lambda event: f"Note delivered with {event.reason}", "good"),
    notes.NOT_GIVEN: ("st-cross", lambda event: f"Note not delivered: {event.reason}", "bad"),
}


def has_label_for_milestone_type(event: TimelineEvent) -> bool:
    """Return whether an event of this type has a label of ours."""
    known_words = _OF_OURS if event.source == notes.SOURCE else _WORDS
    return event.event_type in known_words or event.event_type in {
        *_MILESTONES,
        "session_stop",
        "run_completed",
    }


def milestone_icon_text_and_tone(event: TimelineEvent) -> tuple[str, str, str]:
    """Return the icon, the label and the tone of an event that is neither a call nor a message."""
    spoken = _OF_OURS.get(event.event_type) if event.source == notes.SOURCE else _WORDS.get(event.event_type)
    if spoken is not None:
        icon, word, tone = spoken
        return icon, word(event), tone or ("bad" if event.error else "calm")
    if event.event_type in _MILESTONES:
        return _MILESTONES[event.event_type]
    if event.event_type not in {"session_stop", "run_completed"}:
        # An agent's own event must not look like one of Signalbox's.
        name = event.event_type if event.event_type in _OF_OURS else identifier_to_words(event.event_type)
        return "st-info", name, "bad" if event.error else "calm"
    subject = "Session" if event.event_type == "session_stop" else "Run"
    text_parts = [event.reason or "", f"exit {event.exit_code}" if event.exit_code else ""]
    tail = " · ".join(word for word in text_parts if word)
    bad = (
        bool(event.exit_code)
        or event.error is not None
        or (event.reason or "") in {"error", "failed", "crashed"}
    )
    icon, tone = (
        ("st-cross", "bad")
        if bad
        else ("st-stop", "calm")
        if event.reason == "stopped"
        else ("st-check", "good")
    )
    return icon, f"{subject} ended{f' · {tail}' if tail else ''}", tone
