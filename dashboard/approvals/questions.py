"""Questions and plans on cards: what their form offers, and how a person's answers are parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from django import forms
from django.contrib.auth.models import AnonymousUser, User
from django.http import QueryDict

from coordinator.actions import approvals
from coordinator.actions.approvals import RequestAnswer
from coordinator.errors import BadRequest, SignalboxError
from coordinator.lib.storable import is_storable_text
from coordinator.models import PermissionRequest
from coordinator.policy.requests import question_requests, questions
from coordinator.policy.requests.approvals import approval_additions_by_name
from coordinator.policy.requests.questions import (
    ANSWERED,
    MAX_CHOICES,
    MAX_QUESTIONS,
    MODE,
    OPTION,
    AddressRequest,
    AgentOption,
    AgentQuestions,
    OptionsQuestion,
    PlanMode,
    PlanReview,
    Question,
    SubmittedAnswer,
)
from dashboard.approvals.verdicts import DENY_AND_STOP, MOST_ON_A_CARD, NOT_SHOWN, DecisionOutcome
from dashboard.frame.days import find_zone_by_name
from dashboard.looks.parts import DisplayPart, build_text_part

ANSWER = "answered"
MAX_OPTION_CHARACTERS = 2_000
MODE_LABELS = {PlanMode.ASK: "Approve, ask for each edit", PlanMode.EDITS: "Approve, allow edits"}
MODE_OUTCOMES = {PlanMode.ASK: "Each edit is asked about.", PlanMode.EDITS: "Edits are allowed."}


@dataclass(frozen=True, slots=True)
class QuestionField:
    """One question in a card's form. `place` is its number, from 0; `name` is the name of its form fields."""

    question: Question
    place: int

    @property
    def name(self) -> str:
        return f"answer-{self.place}"

    @property
    def has_text_field(self) -> bool:
        """Return whether a person can type an answer."""
        return self.question.kind != questions.QuestionKind.CHOICE or self.question.accepts_text

    @property
    def initial_text(self) -> str:
        """Return the initial value of the text field."""
        initial = self.question.initial
        if self.input_type == "datetime-local":
            default = parse_iso_time_or_none(initial)
            return default.replace(tzinfo=None).isoformat() if default else ""
        return "" if initial is None or self.question.choices else str(initial)

    @property
    def initial_zone(self) -> str:
        """Return the initial time zone of a time's default; empty to use that of the reader's browser."""
        default = parse_iso_time_or_none(self.question.initial)
        if default is None:
            return ""
        return default.isoformat().removeprefix(default.replace(tzinfo=None).isoformat()) or "UTC"

    @property
    def input_type(self) -> str:
        return "number" if self.question.kind == questions.QuestionKind.NUMBER else self.question.input_type

    @property
    def default_choice_indexes(self) -> list[int]:
        """Return the indexes of the choices that are the question's default."""
        initial = self.question.initial
        initial_values = initial if isinstance(initial, list) else [] if initial is None else [initial]
        return [
            place
            for place, choice in enumerate(self.question.choices)
            if any(choice.value is value or choice.value == value for value in initial_values)
        ]


@dataclass(frozen=True, slots=True)
class QuestionDisplay:
    """What a request asks, as its card shows it."""

    question: questions.PersonQuestion

    @property
    def fields(self) -> list[QuestionField]:
        """Return the questions with the names of their fields; empty for a plan or an address."""
        if not isinstance(self.question, AgentQuestions):
            return []
        return [QuestionField(question, place) for place, question in enumerate(self.question.questions)]

    @property
    def is_plan(self) -> bool:
        return isinstance(self.question, PlanReview)

    @property
    def is_address_to_open(self) -> bool:
        return isinstance(self.question, AddressRequest)

    @property
    def options(self) -> Sequence[AgentOption]:
        """Return the answers that a driven agent offers."""
        return self.question.options if isinstance(self.question, OptionsQuestion) else ()

    @property
    def should_add_deny_button(self) -> bool:
        """Return whether the card adds its own button to deny.

        The options of driven agents usually have one.
        """
        return all(option.allows for option in self.options)

    @property
    def plan_part(self) -> DisplayPart | None:
        """Return the plan as Markdown; None if the agent sent none."""
        text = self.question.text if isinstance(self.question, PlanReview) else ""
        text = self.question.plan if isinstance(self.question, OptionsQuestion) else text
        return build_text_part(text, kind="markdown", label="Plan") if text else None

    @property
    def mode_choices(self) -> list[tuple[str, str]]:
        """Return the modes in which an agent can continue with its plan, with the labels of their buttons."""
        modes = self.question.modes if isinstance(self.question, PlanReview) else ()
        return [(mode.value, MODE_LABELS[mode]) for mode in modes]

    @property
    def kind_label(self) -> str:
        """Return the card's label for this kind of question."""
        return questions.describe_how_agent_asks(self.question)


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """One question and its answer, as a page shows them."""

    question: str
    answer: str


def build_question_display_or_none(row: PermissionRequest) -> QuestionDisplay | None:
    """Return what a request asks; None if it is only approved or denied."""
    question_set = question_requests.parse_request_question_or_none(row)
    return None if question_set is None else QuestionDisplay(question_set)


def list_answer_lines(row: PermissionRequest) -> list[AnswerLine]:
    """Return the questions with the answers of a person; empty if nobody answered."""
    added = approval_additions_by_name(row)
    stored = added.get(ANSWERED)
    if isinstance(stored, list):
        return [build_answer_line(answer) for answer in stored if isinstance(answer, dict)]
    if OPTION in added:
        return [AnswerLine("Chosen answer", str(added.get("name") or added[OPTION]))]
    mode = added.get(MODE)
    if mode in set(PlanMode):
        return [AnswerLine("Plan approved", MODE_OUTCOMES[PlanMode(mode)])]
    return []


def build_answer_line(answer: Mapping[str, Any]) -> AnswerLine:
    labels = answer.get("labels")
    parts = [str(label) for label in labels] if isinstance(labels, list) else []
    text = str(answer.get("text") or "")
    return AnswerLine(
        str(answer.get("question") or ""), ", ".join([*parts, *([text] if text else [])]) or "—"
    )


class AnswerForm(forms.Form):
    """A person's answers to the requests of one card, and the digest of each request that the card showed."""

    ids = forms.MultipleChoiceField()
    judged = forms.MultipleChoiceField(required=False)
    verdict = forms.ChoiceField(
        choices=[(ANSWER, "Answer"), ("denied", "Decline"), (DENY_AND_STOP, "Decline and stop the turn")],
        required=False,
    )
    reason = forms.CharField(max_length=2000, required=False)
    option = forms.CharField(max_length=MAX_OPTION_CHARACTERS, required=False, strip=False)
    mode = forms.ChoiceField(choices=[(mode.value, mode.value) for mode in PlanMode], required=False)

    def __init__(self, data: QueryDict) -> None:
        super().__init__(data)
        for name in ("ids", "judged"):
            values = [value for value in data.getlist(name)[:MOST_ON_A_CARD] if is_storable_text(value)]
            self.fields[name].choices = [(value, value) for value in values]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        """Add the digest of each request by its id (`seen`), and the answers (`answer`)."""
        cleaned_data = self.cleaned_data
        pairs = (judged.partition(":") for judged in cleaned_data.get("judged", []))
        cleaned_data["seen"] = {name: digest for digest, _, name in pairs}
        cleaned_data["answer"] = RequestAnswer(
            [
                extract_submitted_answer_or_empty(self.data, place)
                for place in range(parse_question_count_of_form(self.data))
            ],
            cleaned_data.get("mode", ""),
            cleaned_data.get("option", ""),
        )
        return cleaned_data


def parse_question_count_of_form(data: Mapping[str, Any]) -> int:
    """Return the number of questions in the form. Their fields may be missing if they are empty."""
    count = str(data.get("questions", "0"))
    return min(int(count), MAX_QUESTIONS) if count.isascii() and count.isdigit() and len(count) < 4 else 0


def extract_submitted_answer_or_empty(data: Any, index: int) -> SubmittedAnswer:
    values = data.getlist(f"answer-{index}")[:MAX_CHOICES]
    chosen = tuple(int(value) for value in values if value.isascii() and value.isdigit() and len(value) < 4)
    text = data.get(f"answer-{index}-text", "")[: questions.MAX_FIELD_CHARACTERS + 1]
    if (zone := data.get(f"answer-{index}-zone")) is not None:
        text = append_time_zone_to_time(text, zone.strip())
    return SubmittedAnswer(chosen, text if is_storable_text(text) else "")


def append_time_zone_to_time(text: str, zone: str) -> str:
    """Return a browser's local time with its zone added; any other text unchanged.

    `zone` is the name of a zone or a UTC offset.
    """
    local_time = parse_iso_time_or_none(text)
    tzinfo = find_zone_by_name(zone) or parse_utc_offset_or_none(zone)
    if local_time is None or local_time.tzinfo or tzinfo is None:
        return text
    return local_time.replace(tzinfo=tzinfo).isoformat()


def parse_iso_time_or_none(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def parse_utc_offset_or_none(text: str) -> tzinfo | None:
    try:
        return datetime.strptime(text, "%z").tzinfo
    except ValueError:
        return None


def answer_or_deny_each_request(form: Mapping[str, Any], user: User | AnonymousUser) -> DecisionOutcome:
    """Answer each request of a cleaned `AnswerForm`. A refusal does not stop the others."""
    decided: dict[str, PermissionRequest] = {}
    refusals: dict[str, str] = {}
    for request_id in form["ids"]:
        try:
            decided[request_id] = answer_or_deny_request(request_id, form, user)
        except SignalboxError as refusal:
            refusals[request_id] = str(refusal.detail)
    return DecisionOutcome(decided, {}, refusals)


def answer_or_deny_request(
    request_id: str, form: Mapping[str, Any], user: User | AnonymousUser
) -> PermissionRequest:
    if form["verdict"] in {"denied", DENY_AND_STOP}:
        return approvals.decide_request(
            request_id,
            person=user,
            verdict="denied",
            judged=form["seen"].get(request_id),
            reason=form["reason"],
            stops_turn=form["verdict"] == DENY_AND_STOP,
        )
    if request_id not in form["seen"]:
        raise BadRequest(NOT_SHOWN)
    return approvals.answer_request(
        request_id, form["answer"], person=user, judged=form["seen"][request_id], reason=form["reason"]
    )
