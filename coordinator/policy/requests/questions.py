"""An agent's questions to a person: questions with choices, forms of MCP servers, and plans. Pure.

A request whose call is such a question is not approved but answered: with a yes alone nothing could run. What is asked
is always read from the stored request, which is what its card shows, and an answer names choices by their place in it.
So an answer can hold nothing that was not on offer, and the waiting hook renders it from the call as it was made.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from coordinator.errors import UnprocessableRequest
from coordinator.secrets.masking import MASK, classify_secret_name_strength

# The tools with which agents ask their person, by their names: Claude Code, Gemini CLI and Copilot, OpenCode and Kilo,
# Codex, Qwen Code.
QUESTION_TOOLS = frozenset(
    {"AskUserQuestion", "ask_user", "question", "request_user_input", "ask_user_question"}
)
PLAN_TOOLS = frozenset({"ExitPlanMode", "exit_plan_mode", "plan_exit"})
ELICITATION = (
    "elicitation/create"  # an MCP server, or an agent that the runner drives, asks by a form or an address
)

FORM_FIELDS = frozenset({"message", "requestedSchema"})
MAX_QUESTIONS = 30
MAX_CHOICES = 100
MAX_FIELD_CHARACTERS = 4_000  # of a text that a person types
MAX_PLAN_CHARACTERS = 200_000
MAX_FORM_CHARACTERS = 20_000  # of each text of a server's form, which a person has to read
MAX_ADDRESS_CHARACTERS = 8_000
ANSWERED, MODE, OPTION = "answers", "mode", "option"  # what the decision's answer holds
ANSWER_FIELDS = frozenset({ANSWERED, MODE, OPTION})
SEALED_TEXT = "sealed"  # in a stored answer: the text in place of which `text` holds dots
HIDDEN_TEXT = "••••••"
BOOLEAN_CHOICES = ("Yes", "No")


class QuestionKind(StrEnum):
    """How a question is answered."""

    CHOICE = "choice"
    TEXT = "text"
    NUMBER = "number"


class PlanMode(StrEnum):
    """In which mode an agent goes on after its plan is approved."""

    ASK = "ask"
    EDITS = "edits"


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of a question."""

    label: str
    description: str = ""
    preview: str = ""  # Markdown
    value: Any = None  # what an MCP server is sent for it; None: the label


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a request."""

    text: str
    header: str = ""
    hint: str = ""
    choices: tuple[Choice, ...] = ()
    kind: QuestionKind = QuestionKind.CHOICE
    is_multiple: bool = False
    is_required: bool = True
    accepts_text: bool = True  # in addition to the choices
    key: str = ""  # by what the asker knows it; "": by its text
    placeholder: str = ""
    minimum: float | None = None
    maximum: float | None = None
    is_integer: bool = False
    min_length: int = 0
    max_length: int = MAX_FIELD_CHARACTERS
    input_type: str = "text"  # of the browser's field
    initial: Any = None
    unit: str = ""
    min_choices: int = 0
    max_choices: int = MAX_CHOICES
    is_secret: bool = False  # by its name: what a person types is not kept in the clear

    @property
    def is_one_tap(self) -> bool:
        """Say whether a press on one choice answers it."""
        return self.kind == QuestionKind.CHOICE and not self.is_multiple and bool(self.choices)


@dataclass(frozen=True, slots=True)
class AgentQuestions:
    """Questions that one request asks, all answered at once."""

    questions: tuple[Question, ...]
    title: str = ""
    asker: str = ""  # the MCP server, where one asks

    @property
    def is_one_tap(self) -> bool:
        """Say whether one press answers all of it."""
        return len(self.questions) == 1 and self.questions[0].is_one_tap


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """An MCP server asks the person to open an address."""

    address: str
    message: str
    asker: str = ""
    link: str = ""  # the address itself, where secrets in `address` are masked

    @property
    def address_host(self) -> str:
        """Return the host that the address leads to, as the domain name system writes it."""
        return ascii_host_of_url(self.link or self.address)


@dataclass(frozen=True, slots=True)
class PlanReview:
    """A plan that a person approves or sends back. `modes` are those in which the agent can be asked to go on.

    `repeating_agent` is the agent, by its title, that asks in its terminal once more after a yes from here.
    """

    text: str
    path: str = ""
    modes: tuple[PlanMode, ...] = ()
    repeating_agent: str = ""


@dataclass(frozen=True, slots=True)
class AgentOption:
    """An answer that a driven agent offers by a name of its own."""

    option_id: str
    name: str
    allows: bool
    lasts: bool


@dataclass(frozen=True, slots=True)
class OptionsQuestion:
    """A driven agent asks with options of its own, of which one is chosen by its name; `plan` is what it is about."""

    options: tuple[AgentOption, ...]
    plan: str = ""


PersonQuestion = AgentQuestions | AddressRequest | PlanReview | OptionsQuestion


@dataclass(frozen=True, slots=True)
class SubmittedAnswer:
    """What a person answers to one question: places of choices, and a text."""

    chosen: tuple[int, ...] = ()
    text: str = ""


def is_question_tool(tool: str) -> bool:
    """Say whether agents ask their person by this tool: no rule may answer it, only deny it."""
    return tool in QUESTION_TOOLS or tool in PLAN_TOOLS or tool == ELICITATION


def parse_call_question_or_none(tool: str | None, tool_input: Any) -> PersonQuestion | None:
    """Return what a call asks a person; None where it is no question, or one of no known form."""
    if tool in QUESTION_TOOLS:
        return parse_questions_or_none(tool_input)
    if tool in PLAN_TOOLS:
        return parse_plan_or_none(tool_input)
    return parse_elicitation_or_none(tool_input) if tool == ELICITATION else None


# --- questions of agents ----------------------------------------------------------------------------------


def parse_questions_or_none(tool_input: Any) -> AgentQuestions | None:
    """Return the questions of a call; None where one of them is of no known form, for half of them is not answered."""
    if not isinstance(tool_input, dict):
        return None
    if "requestedSchema" in tool_input and "questions" not in tool_input:
        return parse_form_questions_or_none(tool_input)
    entries = tool_input.get("questions")
    entries = entries if isinstance(entries, list) else [tool_input]
    if not 0 < len(entries) <= MAX_QUESTIONS:
        return None
    questions = [parse_question_or_none(entry) for entry in entries]
    readable = tuple(question for question in questions if question is not None)
    if len(readable) < len(questions) or len({question.text for question in readable}) < len(readable):
        return None
    return AgentQuestions(readable, first_text_member(tool_input, "title"))


def parse_form_questions_or_none(tool_input: Mapping[str, Any]) -> AgentQuestions | None:
    """Return the questions of a form, by which GitHub Copilot CLI asks.

    None where a field asks for a secret, for such answers would be kept in the clear.
    """
    form = parse_elicitation_or_none({name: tool_input[name] for name in FORM_FIELDS & tool_input.keys()})
    if not isinstance(form, AgentQuestions) or not form.questions:
        return None
    return None if any(question.is_secret for question in form.questions) else form


def parse_question_or_none(entry: Any) -> Question | None:
    if not isinstance(entry, dict) or not first_text_member(entry, "question"):
        return None
    options: list[Any] = next(
        (entry[name] for name in ("options", "choices") if isinstance(entry.get(name), list)), []
    )
    choices = [parse_choice_or_none(option) for option in options]
    readable = tuple(choice for choice in choices if choice is not None)
    labels = {choice.label for choice in readable}
    if len(readable) < len(choices) or len(labels) < len(readable) or len(readable) > MAX_CHOICES:
        return None
    kind = first_text_member(entry, "kind", "type")
    text, header = first_text_member(entry, "question"), first_text_member(entry, "header")
    common: dict[str, Any] = {
        "text": text,
        "header": "" if header == text else header,
        "hint": first_text_member(entry, "description"),
        "placeholder": first_text_member(entry, "placeholder"),
        "key": first_text_member(entry, "id"),
    }
    if kind == "number":
        low, high = finite_number_or_none(entry.get("min")), finite_number_or_none(entry.get("max"))
        unit = first_text_member(entry, "unit")
        initial = finite_number_or_none(entry.get("defaultValue"))
        return Question(
            kind=QuestionKind.NUMBER, minimum=low, maximum=high, unit=unit, initial=initial, **common
        )
    if kind in {"yesno", "boolean"}:
        return Question(choices=tuple(Choice(label) for label in BOOLEAN_CHOICES), **common)
    if not readable:
        return Question(kind=QuestionKind.TEXT, **common)
    is_multiple = any(entry.get(name) is True for name in ("multiSelect", "multiple", "multi_select"))
    accepts_text = all(entry.get(name) is not False for name in ("custom", "allow_freeform", "allowFreeform"))
    return Question(choices=readable, is_multiple=is_multiple, accepts_text=accepts_text, **common)


def parse_choice_or_none(option: Any) -> Choice | None:
    if isinstance(option, str):
        return Choice(option) if option.strip() else None
    if not isinstance(option, dict) or not first_text_member(option, "label"):
        return None
    return Choice(
        first_text_member(option, "label"),
        first_text_member(option, "description"),
        first_text_member(option, "preview", "markdown"),
    )


def first_text_member(entry: Mapping[str, Any], *names: str) -> str:
    return next((entry[name] for name in names if isinstance(entry.get(name), str) and entry[name]), "")


def finite_number_or_none(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


# --- plans ------------------------------------------------------------------------------------------------


def parse_plan_or_none(tool_input: Any) -> PlanReview | None:
    """Return the plan of a call; one without a text, too, for a person may know it from the agent's screen."""
    if not isinstance(tool_input, dict):
        return None
    text = first_text_member(tool_input, "plan", "summary", "plan_text")
    path = first_text_member(tool_input, "planFilePath", "plan_path", "plan_filename")
    return PlanReview(text[:MAX_PLAN_CHARACTERS], path)


# --- forms of MCP servers ---------------------------------------------------------------------------------

# What a browser's field is for each format of a text that MCP knows.
INPUT_TYPES = {"email": "email", "uri": "url", "date": "date", "date-time": "datetime-local"}
# Words of JSON Schema that say more of a field than MCP allows: a form without them would ask for something else.
COMPOSING_WORDS = frozenset(
    {"$ref", "$dynamicRef", "allOf", "not", "if", "then", "else", "properties", "additionalProperties"}
)
FORM_COMPOSING_WORDS = (COMPOSING_WORDS - {"properties", "additionalProperties"}) | {"oneOf", "anyOf"}
_WORD_BREAKS = re.compile(r"[\s_-]+")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
# Names that `classify_secret_name_strength` does not know, since in calls they mean other things.
SECRET_FIELD_NAMES = frozenset(
    {"pin", "pin_code", "otp", "one_time_code", "cvv", "cvc", "card_number", "credit_card_number", "ssn"}
)


def parse_elicitation_or_none(params: Any) -> AgentQuestions | AddressRequest | None:
    """Return what an `elicitation/create` asks.

    None where its schema is none that MCP allows, or more than a person reads.
    """
    if not isinstance(params, dict):
        return None
    message, asker = first_text_member(params, "message"), first_text_member(params, "server")
    if len(message) > MAX_FORM_CHARACTERS or params.get("mode", "form") not in {"form", "url"}:
        return None
    if params.get("mode") == "url":
        address = first_text_member(params, "url")
        return AddressRequest(address, message, asker) if is_openable_browser_url(address) else None
    schema = params.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(properties) > MAX_QUESTIONS:
        return None
    assert isinstance(schema, dict)
    if schema.get("type", "object") != "object" or FORM_COMPOSING_WORDS & schema.keys():
        return None
    required = schema.get("required")
    required_names = required if isinstance(required, list) else []
    fields = [
        parse_form_field_or_none(name, field, name in required_names) for name, field in properties.items()
    ]
    readable = tuple(field for field in fields if field is not None)
    return AgentQuestions(readable, message, asker) if len(readable) == len(fields) else None


def is_openable_browser_url(address: str) -> bool:
    """Say whether an address can be opened in a browser, and shows where it leads: without a user's name before it.

    It may contain masks of secrets, as on cards.
    """
    address = MASK.sub("x", address)
    if not address.startswith(("https://", "http://")) or len(address) > MAX_ADDRESS_CHARACTERS:
        return False
    try:
        parts = urlsplit(address)
        return (
            bool(parts.hostname) and "@" not in parts.netloc and address.isprintable() and " " not in address
        )
    except ValueError:
        return False


def ascii_host_of_url(address: str) -> str:
    """Return an address's host in ASCII, in which no letter looks like another; nothing where it has none."""
    try:
        host = urlsplit(address).hostname or ""
        return host if host.isascii() else host.encode("idna").decode()
    except (ValueError, UnicodeError):
        return ""


def parse_form_field_or_none(name: str, field: Any, is_required: bool) -> Question | None:
    """Return one field of a form: a text, a number, a yes or no, or a choice of texts."""
    parse_field = FIELD_PARSERS.get(first_text_member(field, "type")) if isinstance(field, dict) else None
    if parse_field is None or COMPOSING_WORDS & field.keys():
        return None
    title, hint = first_text_member(field, "title"), first_text_member(field, "description")
    if max(len(name), len(title), len(hint)) > MAX_FORM_CHARACTERS:
        return None
    common: dict[str, Any] = {
        "text": title or name,
        "hint": hint,
        "key": name,
        "is_required": is_required,
        "initial": field.get("default"),
        "is_secret": any(is_secret_field_name(label) for label in (name, title)),
    }
    return parse_field(field, common)


def is_secret_field_name(label: str) -> bool:
    """Say whether a field of this name or title asks for a secret."""
    words = _WORD_BREAKS.sub("_", label.strip())
    return words.casefold() in SECRET_FIELD_NAMES or classify_secret_name_strength(words) != ""


def build_boolean_field_question(_field: Mapping[str, Any], common: dict[str, Any]) -> Question:
    choices = (Choice("Yes", value=True), Choice("No", value=False))
    return Question(choices=choices, accepts_text=False, **common)


def parse_number_field(field: Mapping[str, Any], common: dict[str, Any]) -> Question:
    return Question(
        kind=QuestionKind.NUMBER,
        minimum=finite_number_or_none(field.get("minimum")),
        maximum=finite_number_or_none(field.get("maximum")),
        is_integer=field.get("type") == "integer",
        **common,
    )


def parse_array_field_or_none(field: Mapping[str, Any], common: dict[str, Any]) -> Question | None:
    items = field.get("items")
    choices = parse_enumerated_choices_or_none(items) if isinstance(items, dict) else None
    if choices is None:
        return None
    return Question(
        choices=choices,
        is_multiple=True,
        accepts_text=False,
        min_choices=read_count(field.get("minItems"), 0),
        max_choices=read_count(field.get("maxItems"), MAX_CHOICES),
        **common,
    )


def parse_text_field(field: Mapping[str, Any], common: dict[str, Any]) -> Question | None:
    if any(listed in field for listed in ("enum", "oneOf", "anyOf")):
        choices = parse_enumerated_choices_or_none(field)
        return Question(choices=choices, accepts_text=False, **common) if choices else None
    return Question(
        kind=QuestionKind.TEXT,
        min_length=read_count(field.get("minLength"), 0),
        max_length=min(MAX_FIELD_CHARACTERS, read_count(field.get("maxLength"), MAX_FIELD_CHARACTERS)),
        input_type=INPUT_TYPES.get(first_text_member(field, "format"), "text"),
        **common,
    )


FIELD_PARSERS: Mapping[str, Callable[[Mapping[str, Any], dict[str, Any]], Question | None]] = {
    "boolean": build_boolean_field_question,
    "number": parse_number_field,
    "integer": parse_number_field,
    "array": parse_array_field_or_none,
    "string": parse_text_field,
}


def read_count(value: Any, default: int) -> int:
    """Return a count of a schema as it is given, at most a million; the default for what is none."""
    number = finite_number_or_none(value)
    return default if number is None else int(max(0, min(number, 1_000_000)))


def parse_enumerated_choices_or_none(field: Mapping[str, Any]) -> tuple[Choice, ...] | None:
    """Return the choices of an enumeration, with its values' titles where it has them."""
    titled = next((field[name] for name in ("oneOf", "anyOf") if isinstance(field.get(name), list)), None)
    if titled is not None:
        choices = [
            Choice(
                first_text_member(entry, "title") or entry["const"],
                first_text_member(entry, "description"),
                value=entry["const"],
            )
            for entry in titled
            if isinstance(entry, dict) and isinstance(entry.get("const"), str)
        ]
        count = len(titled)
    else:
        values, names = field.get("enum"), field.get("enumNames")
        values = values if isinstance(values, list) else []
        names = names if isinstance(names, list) and len(names) == len(values) else values
        choices = [
            Choice(str(label), value=value)
            for value, label in zip(values, names, strict=True)
            if isinstance(value, str)
        ]
        count = len(values)
    return tuple(choices) if choices and len(choices) == count <= MAX_CHOICES else None


# --- answers ----------------------------------------------------------------------------------------------


def convert_answers_to_stored_list(
    questions: AgentQuestions, answers: Sequence[SubmittedAnswer]
) -> list[dict[str, Any]]:
    """Return the answers as a decision stores them, one for each question.

    `chosen` are places of choices, `labels` those choices' words, `text` is what the person typed. Raises
    UnprocessableRequest, saying which question is not answered, or answered with what was not on offer.
    """
    if len(answers) != len(questions.questions):
        raise UnprocessableRequest("The answers do not fit the questions. Reload the page and answer again.")
    return [
        convert_answer_to_stored_form(question, answer)
        for question, answer in zip(questions.questions, answers, strict=True)
    ]


def convert_answer_to_stored_form(question: Question, answer: SubmittedAnswer) -> dict[str, Any]:
    chosen = tuple(dict.fromkeys(answer.chosen))
    text = answer.text.replace("\r\n", "\n").strip()
    if any(not 0 <= place < len(question.choices) for place in chosen):
        raise UnprocessableRequest(f"“{question.text}” does not offer that choice.")
    if len(chosen) > 1 and not question.is_multiple:
        raise UnprocessableRequest(f"Choose one answer to “{question.text}”.")
    if text and question.kind == QuestionKind.CHOICE and not question.accepts_text:
        raise UnprocessableRequest(f"“{question.text}” is answered with a choice alone.")
    if not chosen and not text and question.is_required:
        raise UnprocessableRequest(f"Answer “{question.text}” first.")
    least, most = question.min_choices, question.max_choices
    if question.is_multiple and (chosen or question.is_required) and len(chosen) < least:
        raise UnprocessableRequest(f"Choose at least {least} in “{question.text}”.")
    if len(chosen) > most:
        raise UnprocessableRequest(f"Choose at most {most} in “{question.text}”.")
    if text:
        require_valid_answer_text(question, text)
    return {
        "question": question.text,
        "chosen": list(chosen),
        "labels": [question.choices[place].label for place in chosen],
        "text": text,
    }


def require_valid_answer_text(question: Question, text: str) -> None:
    if question.kind == QuestionKind.NUMBER:
        number = parse_number_or_none(text)
        if number is None or (question.is_integer and isinstance(number, float) and not number.is_integer()):
            kind = "a whole number" if question.is_integer else "a number"
            raise UnprocessableRequest(f"Answer “{question.text}” with {kind}.")
        if question.minimum is not None and number < question.minimum:
            raise UnprocessableRequest(f"“{question.text}” is at least {question.minimum:g}.")
        if question.maximum is not None and number > question.maximum:
            raise UnprocessableRequest(f"“{question.text}” is at most {question.maximum:g}.")
    elif (problem := describe_format_problem_or_none(question.input_type, text)) is not None:
        raise UnprocessableRequest(f"Answer “{question.text}” with {problem}.")
    elif len(text) > question.max_length:
        raise UnprocessableRequest(f"“{question.text}”: write at most {question.max_length:,} characters.")
    elif len(text) < question.min_length:
        raise UnprocessableRequest(f"“{question.text}”: write at least {question.min_length:,} characters.")


def describe_format_problem_or_none(input_type: str, text: str) -> str | None:
    """Return what a text of this kind of field must be instead; None where it is that."""
    try:
        if input_type == "email" and not _EMAIL.fullmatch(text):
            return "an e-mail address"
        if input_type == "url" and not urlsplit(text).scheme:
            return "an address"
        if input_type == "date":
            date.fromisoformat(text)
        if input_type == "datetime-local" and datetime.fromisoformat(text).tzinfo is None:
            return "a time and its zone, such as 2026-11-27T10:00:00+01:00"
    except ValueError:
        return {"date": "a date, such as 2026-11-27", "url": "an address"}.get(
            input_type, "a time, such as 2026-11-27T10:00:00+01:00"
        )
    return None


def parse_number_or_none(text: str) -> float | None:
    """Return the number that a text denotes, a whole one exactly; None where it is none."""
    if len(text) > 100:
        return None
    for read in (int, float):
        try:
            number: float = read(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return None


def match_stored_answers_to_questions(
    questions: AgentQuestions, stored: Any
) -> list[tuple[Question, tuple[Choice, ...], str]] | None:
    """Return each question with the choices and the text of its stored answer; None where they do not fit.

    The questions may be read from the call as it was made, in place of its stored, masked form: places stay.
    """
    if not isinstance(stored, list) or len(stored) != len(questions.questions):
        return None
    answers = []
    for question, answer in zip(questions.questions, stored, strict=True):
        chosen = answer.get("chosen") if isinstance(answer, dict) else None
        if not isinstance(chosen, list) or not all(
            isinstance(place, int) and 0 <= place < len(question.choices) for place in chosen
        ):
            return None
        answers.append((question, tuple(question.choices[place] for place in chosen), str(answer["text"])))
    return answers


def copy_without_secret_answers(added: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a person added to a decision without the texts that nobody but the asker is to read."""
    stored = added.get(ANSWERED)
    if not isinstance(stored, list):
        return dict(added)
    answers = [
        {name: value for name, value in answer.items() if name != SEALED_TEXT}
        if isinstance(answer, dict)
        else answer
        for answer in stored
    ]
    return {**added, ANSWERED: answers}


def claude_code_answers_or_none(questions: AgentQuestions, stored: Any) -> dict[str, Any] | None:
    """Return the fields that Claude Code's tool takes with its input: answers, and notes on chosen ones."""
    stored_answers = match_stored_answers_to_questions(questions, stored)
    if stored_answers is None:
        return None
    answers: dict[str, str] = {}
    annotations: dict[str, dict[str, str]] = {}
    for question, chosen, text in stored_answers:
        labels = [choice.label for choice in chosen]
        if question.is_multiple:
            answers[question.text] = join_claude_labels([*labels, text] if text else labels)
            continue
        answers[question.text] = "".join(labels) or text
        notes = {"notes": text} if labels and text else {}
        preview = {"preview": chosen[0].preview} if chosen and chosen[0].preview else {}
        if notes or preview:
            annotations[question.text] = notes | preview
    return {"answers": answers} | ({"annotations": annotations} if annotations else {})


def join_claude_labels(labels: Sequence[str]) -> str:
    """Join labels as Claude Code does: one that holds the separator, or a quote, is written as a JSON text."""
    return ", ".join(
        json.dumps(label, ensure_ascii=False) if ", " in label or '"' in label else label for label in labels
    )


def describe_answers_or_none(questions: AgentQuestions, stored: Any) -> str | None:
    """Return the answers in words, for an agent that takes no other form."""
    answers = match_stored_answers_to_questions(questions, stored)
    if answers is None:
        return None
    lines = []
    for question, chosen, text in answers:
        parts = [", ".join(choice.label for choice in chosen), text]
        lines.append(f"{question.text} — {': '.join(part for part in parts if part) or 'no answer'}")
    return "\n".join(lines)


def build_answer_lists_or_none(questions: AgentQuestions, stored: Any) -> list[list[str]] | None:
    """Return the labels and texts of each question's answer, as OpenCode and Codex take them."""
    answers = match_stored_answers_to_questions(questions, stored)
    if answers is None:
        return None
    return [[*(choice.label for choice in chosen), *([text] if text else [])] for _, chosen, text in answers]


def build_elicitation_content(questions: AgentQuestions, stored: Any) -> dict[str, Any] | None:
    """Return the content that an MCP server is sent: each field that was answered, in its own type."""
    form_content = match_stored_answers_to_questions(questions, stored)
    if form_content is None:
        return None
    content: dict[str, Any] = {}
    for question, chosen, text in form_content:
        values = [choice.label if choice.value is None else choice.value for choice in chosen]
        if question.is_multiple and values:
            content[question.key] = values
        elif values:
            content[question.key] = values[0]
        elif text and question.kind == QuestionKind.NUMBER:
            number = parse_number_or_none(text)
            is_whole = isinstance(number, float) and number.is_integer()
            content[question.key] = int(number) if number is not None and is_whole else number
        elif text:
            content[question.key] = text
    return content


def question_or_plan_in_one_line(tool: str | None, tool_input: Any) -> str:
    """Return what a call asks a person in one line: the question, or the first line of the plan."""
    question = parse_call_question_or_none(tool, tool_input)
    if isinstance(question, PlanReview):
        lines = (line.strip().lstrip("#").strip() for line in question.text.splitlines())
        return next((line for line in lines if line), "A plan")
    if isinstance(question, AddressRequest):
        return question.message or question.address
    if not isinstance(question, AgentQuestions):
        return ""
    first = question.questions[0].text if question.questions else ""
    more = f" (and {len(question.questions) - 1} more)" if len(question.questions) > 1 else ""
    return question.title or f"{first}{more}"


def describe_how_agent_asks(question: PersonQuestion) -> str:
    """Return what an agent does that asks this: "asks a question", "has a plan"."""
    if isinstance(question, PlanReview):
        return "has a plan"
    if isinstance(question, OptionsQuestion):
        return "has a plan" if question.plan else "asks which way to go"
    if isinstance(question, AddressRequest) or len(question.questions) == 1:
        return "asks a question"
    return f"asks {len(question.questions)} questions" if question.questions else "asks for a confirmation"
