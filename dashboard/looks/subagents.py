"""Displays of sub-agents, skills, plans and questions to people."""

from __future__ import annotations

from typing import Any

from coordinator.policy.requests import questions
from dashboard.looks.inputs import InputFields
from dashboard.looks.parts import (
    MOST_FACTS,
    CallDisplay,
    DisplayPart,
    build_output_parts,
    build_text_part,
    extract_output_text_or_none,
    first_string_field_or_empty,
)


def build_subagent_call_display(name: str, values: dict[str, Any], output: Any) -> CallDisplay | None:
    fields = InputFields(values)
    prompt = fields.pop_first_text_field("prompt", "task", "message")
    if not prompt:
        return None
    fields.remove_fields("description", "subagent_type")
    kind = first_string_field_or_empty(values, "subagent_type", "agent", "agent_name")
    report = (
        extract_output_text_or_none(output.get("content"))
        if isinstance(output, dict)
        else extract_output_text_or_none(output)
    )
    outputs = (
        [build_text_part(report, kind="markdown", label="Report")] if report else build_output_parts(output)
    )
    return CallDisplay(
        "agents",
        f"{name} · {kind}" if kind else name,
        title=first_string_field_or_empty(values, "description") or prompt.strip().partition("\n")[0],
        note=describe_subagent_calls_and_tokens(output),
        inputs=[
            *fields.build_parts_of_popped_text(prompt, kind="markdown", label="Prompt"),
            *fields.build_remaining_parts(),
        ],
        outputs=outputs,
    )


def describe_subagent_calls_and_tokens(output: Any) -> str:
    if not isinstance(output, dict):
        return ""
    calls, tokens = output.get("totalToolUseCount"), output.get("totalTokens")
    text_parts = [
        f"{calls:,} calls" if isinstance(calls, int) else "",
        f"{tokens:,} tokens" if isinstance(tokens, int) else "",
    ]
    return ", ".join(word for word in text_parts if word)


def build_plan_call_display(name: str, values: dict[str, Any], output: Any) -> CallDisplay | None:
    fields = InputFields(values)
    text = fields.pop_first_text_field("plan")
    return (
        CallDisplay(
            "audit",
            name,
            title=text.strip().partition("\n")[0].lstrip("# "),
            inputs=[
                *fields.build_parts_of_popped_text(text, kind="markdown", label="Plan"),
                *fields.build_remaining_parts(),
            ],
            outputs=build_output_parts(output, "Answer"),
        )
        if text
        else None
    )


def build_question_call_display(name: str, values: dict[str, Any], output: Any) -> CallDisplay | None:
    question_set = questions.parse_questions_or_none(values)
    if question_set is None or len(question_set.questions) > MOST_FACTS:
        return None
    fields = InputFields(values)
    fields.remove_fields("questions", "question", "options", "choices", "answers")
    choices = [
        (question.text, " · ".join(choice.label for choice in question.choices))
        for question in question_set.questions
    ]
    answers = pair_questions_with_reported_answers(question_set, output, values)
    outputs = (
        [DisplayPart("facts", answers, label="Answer")] if answers else build_output_parts(output, "Answer")
    )
    return CallDisplay(
        "chat",
        name,
        title=question_set.questions[0].text,
        note=" · ".join(answer for _, answer in answers),
        inputs=[DisplayPart("facts", choices, label="Question"), *fields.build_remaining_parts()],
        outputs=outputs,
    )


def pair_questions_with_reported_answers(
    question_set: questions.AgentQuestions, output: Any, values: dict[str, Any]
) -> list[tuple[str, str]]:
    """Return each question with the answer that the agent reported under the question's text or id."""
    reports = [source.get("answers") for source in (output, values) if isinstance(source, dict)]
    answers = next((report for report in reports if isinstance(report, dict)), {})
    reported = []
    for question in question_set.questions:
        value = answers.get(question.text, answers.get(question.key))
        value = value.get("answers", value) if isinstance(value, dict) else value
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        if isinstance(text, str) and text:
            reported.append((question.text, text))
    return reported


def build_skill_call_display(name: str, values: dict[str, Any], output: Any) -> CallDisplay | None:
    fields = InputFields(values)
    called = fields.pop_first_text_field("skill", "command", "name")
    return (
        CallDisplay(
            "tool",
            name,
            title=called,
            mono=True,
            inputs=fields.build_remaining_parts(),
            outputs=build_output_parts(output),
        )
        if called
        else None
    )


TOOLS = {
    **dict.fromkeys(("task", "agent", "spawnagent", "delegate"), build_subagent_call_display),
    **dict.fromkeys(("exitplanmode", "planexit"), build_plan_call_display),
    **dict.fromkeys(
        ("askuserquestion", "askuser", "question", "requestuserinput"), build_question_call_display
    ),
    **dict.fromkeys(("skill", "slashcommand"), build_skill_call_display),
}
