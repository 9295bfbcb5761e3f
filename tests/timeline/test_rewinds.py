"""What a person left behind by rewinding is marked, says so in words, and still counts what it cost."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from coordinator.models import Event, ModelRequestUsage, Session
from coordinator.sessions.timeline.rewinds import parse_rewound_span
from tests.people import signed_in

pytestmark = pytest.mark.django_db
CLAUDE = "c0000000-0000-4000-8000-000000000042"
CODEX = "019aa000-0000-7000-8000-000000000042"


def at(second: int) -> str:
    return f"2026-11-20T10:{second // 60:02}:{second % 60:02}.000Z"


def claude_line(
    kind: str, uuid: str, parent: str | None, second: int, content: Any, **more: Any
) -> dict[str, Any]:
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        usage = {"input_tokens": 10, "output_tokens": 5}
        message |= {
            "id": f"msg_{uuid}",
            "model": "claude-sonnet-4-5",
            "usage": usage,
            "stop_reason": "end_turn",
        }
    return {
        "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": CLAUDE, "timestamp": at(second),
        "cwd": "/srv/shop", "version": "2.1.332", "requestId": f"req_{uuid}", "message": message, **more,
    }  # fmt: skip


def spoken(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def used(tool: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": f"toolu_{tool}", "name": "Bash", "input": {"command": tool}}]


def result(tool: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": f"toolu_{tool}", "content": "ok"}]


# A question, a first way with a call, and another way after rewinding to the first answer.
REWOUND = [
    claude_line("user", "u1", None, 0, "First question"),
    claude_line("assistant", "a1", "u1", 10, spoken("First answer")),
    claude_line("user", "u2", "a1", 20, "Wrong way"),
    claude_line("assistant", "a2", "u2", 30, used("left")),
    claude_line("user", "r2", "a2", 40, result("left")),
    claude_line("assistant", "a3", "r2", 50, spoken("Wrong answer")),
    claude_line("user", "u3", "a1", 60, "Right way"),
    claude_line("assistant", "a4", "u3", 70, spoken("Right answer")),
]


def bring(program: str, folder: Path, name: str, lines: list[dict[str, Any]]) -> Session:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    call_command("import_transcripts", program, str(folder), stdout=StringIO())
    return Session.objects.get()


def bring_claude(folder: Path, lines: list[dict[str, Any]]) -> Session:
    return bring("claude-code", folder, f"projects/-srv-shop/{CLAUDE}.jsonl", lines)


def rewinds() -> list[dict[str, Any]]:
    return list(Event.objects.filter(event_type="rewind").values_list("tool_input", flat=True))


def read_page(session: Session) -> str:
    return signed_in("viewer").get(f"/ui/sessions/{session.pk}/").content.decode()


def marked_texts(body: str) -> dict[str, bool]:
    """Return a page's rows by what they say, and whether they are marked as left behind."""
    rows = re.findall(r'<li\s+class="entry ([^"]+)"(.*?)</li>', body, re.DOTALL)
    texts = [
        "First question",
        "First answer",
        "Wrong way",
        "left",
        "Wrong answer",
        "Right way",
        "Right answer",
    ]
    found = {}
    for classes, inner in rows:
        has_tag = ">rewound<" in inner
        assert has_tag == ("rewound" in classes.split())
        for text in texts:
            if re.search(rf">\s*{text}\s*<", inner):
                found[text] = has_tag
    return found


def test_what_came_after_the_message_that_a_person_went_back_to_is_marked(tmp_path: Path) -> None:
    session = bring_claude(tmp_path, REWOUND)
    (left,) = rewinds()
    assert left["messages"] == 3  # the prompt, the call and the answer
    body = read_page(session)
    assert marked_texts(body) == {
        "First question": False,
        "First answer": False,
        "Wrong way": True,
        "left": True,
        "Wrong answer": True,
        "Right way": False,
        "Right answer": False,
    }
    assert "Rewound to an earlier message · 3 messages left behind" in body


def test_requests_that_were_left_behind_count(tmp_path: Path) -> None:
    bring_claude(tmp_path, REWOUND)
    assert ModelRequestUsage.objects.count() == 4


def test_an_import_that_is_repeated_adds_no_second_rewind(tmp_path: Path) -> None:
    bring_claude(tmp_path, REWOUND)
    bring_claude(tmp_path, REWOUND)
    assert len(rewinds()) == 1


@pytest.mark.parametrize(
    "lines",
    [
        [line for line in REWOUND if line["uuid"] != "u3"],
        # Calls at the same time: the results follow their calls, and so does what comes then.
        [
            *REWOUND[:2],
            claude_line("assistant", "b1", "a1", 20, used("one")),
            claude_line("assistant", "b2", "b1", 21, used("two")),
            claude_line("user", "s1", "b1", 22, result("one")),
            claude_line("user", "s2", "b2", 23, result("two")),
            claude_line("user", "u3", "s1", 60, "Right way"),
        ],
        # A summary of what was compacted follows its last line.
        [
            *REWOUND[:2],
            {
                **claude_line("user", "c1", None, 20, ""), "type": "system", "subtype": "compact_boundary",
                "logicalParentUuid": "a1", "content": "Conversation compacted",
            },
            claude_line("user", "u3", "c1", 60, "Right way"),
        ],
        # A sub-agent's own conversation.
        [
            *REWOUND[:2],
            claude_line("user", "x1", "a1", 20, "Look", isSidechain=True),
            claude_line("assistant", "x2", "x1", 21, spoken("Looked"), isSidechain=True),
            claude_line("user", "u3", "a1", 60, "Right way"),
        ],
        # A prompt that follows nothing, and one that follows a line which is not in the file.
        [*REWOUND[:2], claude_line("user", "u3", None, 60, "Right way")],
        [*REWOUND[:2], claude_line("user", "u3", "elsewhere", 60, "Right way")],
    ],
    ids=["no second way", "parallel calls", "compacted", "sub-agent", "a beginning", "unknown"],
)  # fmt: skip
def test_a_conversation_that_only_goes_on_is_not_marked(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    session = bring_claude(tmp_path, lines)
    assert rewinds() == []
    assert not any(marked_texts(read_page(session)).values())


def test_lines_that_follow_each_other_in_a_circle_end(tmp_path: Path) -> None:
    circle = [
        claude_line("assistant", "a1", "a2", 10, spoken("First answer")),
        claude_line("assistant", "a2", "a1", 20, spoken("Wrong answer")),
        claude_line("user", "u3", "a0", 60, "Right way"),
    ]
    bring_claude(tmp_path, circle)
    assert rewinds() == []


def test_turns_that_codex_rolled_back_are_marked(tmp_path: Path) -> None:
    def line(second: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": at(second), "type": kind, "payload": payload}

    def says(second: int, role: str, text: str) -> dict[str, Any]:
        content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
        return line(second, "response_item", {"type": "message", "role": role, "content": content})

    lines = [
        line(0, "session_meta", {"id": CODEX, "cwd": "/srv/shop", "cli_version": "0.171.0"}),
        says(1, "user", "First question"),
        says(10, "assistant", "First answer"),
        says(20, "user", "Wrong way"),
        says(50, "assistant", "Wrong answer"),
        line(55, "event_msg", {"type": "thread_rolled_back", "num_turns": 1}),
        says(60, "user", "Right way"),
        says(70, "assistant", "Right answer"),
    ]
    name = f"sessions/2026/11/20/rollout-2026-11-20T10-00-00-{CODEX}.jsonl"
    session = bring("codex", tmp_path, name, lines)
    assert [left["messages"] for left in rewinds()] == [2]
    marked = marked_texts(read_page(session))
    assert [text for text, is_marked in marked.items() if is_marked] == ["Wrong way", "Wrong answer"]
    assert len(marked) == 6


def test_messages_that_gemini_rewound_are_marked(tmp_path: Path) -> None:
    name = "c0000000-0000-4000-8000-000000000043"

    def says(second: int, kind: str, text: str) -> dict[str, Any]:
        return {"id": f"m{second}", "type": kind, "timestamp": at(second), "content": text}

    lines = [
        {"sessionId": name, "projectHash": "abc", "startTime": at(0), "kind": "main"},
        says(1, "user", "First question"),
        says(10, "gemini", "First answer"),
        says(20, "user", "Wrong way"),
        says(50, "gemini", "Wrong answer"),
        {"$rewindTo": "m20"},
        says(60, "user", "Right way"),
    ]
    session = bring("gemini", tmp_path, f"tmp/shop/chats/session-2026-11-20T10-00-{name[:8]}.jsonl", lines)
    assert [left["messages"] for left in rewinds()] == [2]
    marked = marked_texts(read_page(session))
    assert [text for text, is_marked in marked.items() if is_marked] == ["Wrong way", "Wrong answer"]
    assert len(marked) == 5


@pytest.mark.parametrize(
    "stored",
    [
        None,
        7,
        "x",
        [],
        {},
        {"left_from": 1, "left_until": at(1)},
        {"left_from": at(9), "left_until": at(1)},
        "{",
    ],
)
def test_a_rewind_that_cannot_be_read_marks_nothing(stored: object) -> None:
    assert parse_rewound_span(stored) is None
