"""Other agents, skills, plans and questions to people."""

from __future__ import annotations

from typing import Any

from dashboard.looks.inputs import Fields
from dashboard.looks.parts import MOST_FACTS, Look, Part, output_parts, string, text_of, text_part


def task(name: str, given: dict[str, Any], came: Any) -> Look | None:
    fields = Fields(given)
    prompt = fields.take("prompt", "task", "message")
    if not prompt:
        return None
    fields.leave_out("description", "subagent_type")
    kind = string(given, "subagent_type", "agent", "agent_name")
    report = text_of(came.get("content")) if isinstance(came, dict) else text_of(came)
    outputs = [text_part(report, kind="markdown", label="Report")] if report else output_parts(came)
    return Look(
        "agents",
        f"{name} · {kind}" if kind else name,
        title=string(given, "description") or prompt.strip().partition("\n")[0],
        note=_effort(came),
        inputs=[*fields.text(prompt, kind="markdown", label="Prompt"), *fields.others()],
        outputs=outputs,
    )


def _effort(came: Any) -> str:
    if not isinstance(came, dict):
        return ""
    calls, tokens = came.get("totalToolUseCount"), came.get("totalTokens")
    words = [
        f"{calls:,} calls" if isinstance(calls, int) else "",
        f"{tokens:,} tokens" if isinstance(tokens, int) else "",
    ]
    return ", ".join(word for word in words if word)


def plan(name: str, given: dict[str, Any], came: Any) -> Look | None:
    fields = Fields(given)
    text = fields.take("plan")
    return (
        Look(
            "audit",
            name,
            title=text.strip().partition("\n")[0].lstrip("# "),
            inputs=[*fields.text(text, kind="markdown", label="Plan"), *fields.others()],
            outputs=output_parts(came, "Answer"),
        )
        if text
        else None
    )


def question(name: str, given: dict[str, Any], came: Any) -> Look | None:
    questions = given.get("questions")
    if not isinstance(questions, list) or len(questions) > MOST_FACTS:
        return None
    if not all(isinstance(one, dict) for one in questions):
        return None
    fields = Fields(given)
    fields.leave_out("questions")
    asked = [(string(one, "question"), " · ".join(_choices(one))) for one in questions]
    return Look(
        "chat",
        name,
        title=asked[0][0] if asked else "",
        inputs=[Part("facts", asked, label="Question"), *fields.others()],
        outputs=output_parts(came, "Answer"),
    )


def _choices(question: dict[str, Any]) -> list[str]:
    options = question.get("options")
    return (
        [string(option, "label") if isinstance(option, dict) else str(option) for option in options]
        if isinstance(options, list)
        else []
    )


def skill(name: str, given: dict[str, Any], came: Any) -> Look | None:
    fields = Fields(given)
    called = fields.take("skill", "command", "name")
    return (
        Look(
            "tool",
            name,
            title=called,
            mono=True,
            inputs=fields.others(),
            outputs=output_parts(came),
        )
        if called
        else None
    )


TOOLS = {
    **dict.fromkeys(("task", "agent", "spawnagent", "delegate"), task),
    "exitplanmode": plan,
    "askuserquestion": question,
    **dict.fromkeys(("skill", "slashcommand"), skill),
}
