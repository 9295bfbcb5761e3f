"""Other agents, skills, plans and questions to people."""

from __future__ import annotations

from typing import Any

from dashboard.looks.inputs import InputFields
from dashboard.looks.parts import (
    MOST_FACTS,
    CallDisplay,
    DisplayPart,
    build_output_parts,
    build_text_part,
    extract_output_text,
    first_string_value,
)


def display_subagent_task(name: str, given: dict[str, Any], came: Any) -> CallDisplay | None:
    fields = InputFields(given)
    prompt = fields.take_text("prompt", "task", "message")
    if not prompt:
        return None
    fields.remove_fields("description", "subagent_type")
    kind = first_string_value(given, "subagent_type", "agent", "agent_name")
    report = extract_output_text(came.get("content")) if isinstance(came, dict) else extract_output_text(came)
    outputs = (
        [build_text_part(report, kind="markdown", label="Report")] if report else build_output_parts(came)
    )
    return CallDisplay(
        "agents",
        f"{name} · {kind}" if kind else name,
        title=first_string_value(given, "description") or prompt.strip().partition("\n")[0],
        note=describe_subagent_effort(came),
        inputs=[
            *fields.build_taken_text_part(prompt, kind="markdown", label="Prompt"),
            *fields.build_remaining_parts(),
        ],
        outputs=outputs,
    )


def describe_subagent_effort(came: Any) -> str:
    if not isinstance(came, dict):
        return ""
    calls, tokens = came.get("totalToolUseCount"), came.get("totalTokens")
    text_parts = [
        f"{calls:,} calls" if isinstance(calls, int) else "",
        f"{tokens:,} tokens" if isinstance(tokens, int) else "",
    ]
    return ", ".join(word for word in text_parts if word)


def display_plan(name: str, given: dict[str, Any], came: Any) -> CallDisplay | None:
    fields = InputFields(given)
    text = fields.take_text("plan")
    return (
        CallDisplay(
            "audit",
            name,
            title=text.strip().partition("\n")[0].lstrip("# "),
            inputs=[
                *fields.build_taken_text_part(text, kind="markdown", label="Plan"),
                *fields.build_remaining_parts(),
            ],
            outputs=build_output_parts(came, "Answer"),
        )
        if text
        else None
    )


def display_question(name: str, given: dict[str, Any], came: Any) -> CallDisplay | None:
    questions = given.get("questions")
    if not isinstance(questions, list) or len(questions) > MOST_FACTS:
        return None
    if not all(isinstance(question, dict) for question in questions):
        return None
    fields = InputFields(given)
    fields.remove_fields("questions")
    asked_questions = [
        (first_string_value(question, "question"), " · ".join(list_question_choices(question)))
        for question in questions
    ]
    return CallDisplay(
        "chat",
        name,
        title=asked_questions[0][0] if asked_questions else "",
        inputs=[DisplayPart("facts", asked_questions, label="Question"), *fields.build_remaining_parts()],
        outputs=build_output_parts(came, "Answer"),
    )


def list_question_choices(question: dict[str, Any]) -> list[str]:
    options = question.get("options")
    return (
        [
            first_string_value(option, "label") if isinstance(option, dict) else str(option)
            for option in options
        ]
        if isinstance(options, list)
        else []
    )


def display_skill(name: str, given: dict[str, Any], came: Any) -> CallDisplay | None:
    fields = InputFields(given)
    called = fields.take_text("skill", "command", "name")
    return (
        CallDisplay(
            "tool",
            name,
            title=called,
            mono=True,
            inputs=fields.build_remaining_parts(),
            outputs=build_output_parts(came),
        )
        if called
        else None
    )


TOOLS = {
    **dict.fromkeys(("task", "agent", "spawnagent", "delegate"), display_subagent_task),
    "exitplanmode": display_plan,
    "askuserquestion": display_question,
    **dict.fromkeys(("skill", "slashcommand"), display_skill),
}
