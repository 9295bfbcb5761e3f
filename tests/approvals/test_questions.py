"""Questions and forms: what of them is read, which answers count, and that nothing but an answer answers them."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.actions import approvals
from coordinator.actions.approvals import RequestAnswer
from coordinator.errors import BadRequest, SignalboxError, UnprocessableRequest
from coordinator.models import PermissionRequest
from coordinator.notifications import messages, push
from coordinator.policy.requests import question_requests, questions
from coordinator.policy.requests.approvals import Scope, Validity
from coordinator.policy.requests.judged_content import judged_card_digest
from coordinator.policy.requests.questions import AgentQuestions, SubmittedAnswer
from tests.approvals.factories import NOW, person
from tests.approvals.factories import asked as requested

ONE = {"questions": [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}


def form_of(title: str) -> dict[str, Any]:
    """Return a form with one choice, by which GitHub Copilot CLI asks."""
    return {"type": "object", "properties": {"f": {"type": "string", "title": title, "enum": ["A", "B"]}}}


def asked_of(tool_input: Any, tool: str = "AskUserQuestion") -> AgentQuestions:
    asked = questions.parse_call_question_or_none(tool, tool_input)
    assert isinstance(asked, AgentQuestions)
    return asked


@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        ("AskUserQuestion", ONE),
        ("ask_user", {"question": "Which?", "choices": ["A", "B"], "allow_freeform": True}),
        ("ask_user", {"questions": [{"question": "Which?", "type": "choice", **ONE["questions"][0]}]}),
        (
            "question",
            {"questions": [{"question": "Which?", "header": "", "multiple": False, **ONE["questions"][0]}]},
        ),
        ("request_user_input", {"questions": [{"id": "which", **ONE["questions"][0]}]}),
        ("AskUserQuestion", {"message": "Please", "requestedSchema": form_of("Which?")}),
    ],
)
def test_the_questions_of_each_agent_are_read(tool: str, tool_input: Any) -> None:
    (question,) = asked_of(tool_input, tool).questions
    assert (question.text, [choice.label for choice in question.choices]) == ("Which?", ["A", "B"])


@pytest.mark.parametrize(
    "tool_input",
    [
        None,
        [],
        {},
        {"questions": []},
        {"questions": [5]},
        {"questions": [{"question": ""}]},
        {"questions": [{"question": "Q", "options": [{"label": ""}]}]},
        {"questions": [{"question": "Q", "options": ["A", "A"]}]},
        {"questions": [ONE["questions"][0]] * 2},
        {"message": "Q", "requestedSchema": {"type": "object", "properties": {}}},
        {"message": "Q", "requestedSchema": {"type": "object", "properties": {"f": {"type": "file"}}}},
        {"message": "Q", "requestedSchema": form_of("Password")},
        {"questions": [{"question": str(number)} for number in range(questions.MAX_QUESTIONS + 1)]},
    ],
)
def test_what_is_no_question_is_read_as_none(tool_input: Any) -> None:
    assert questions.parse_call_question_or_none("AskUserQuestion", tool_input) is None


@pytest.mark.parametrize(
    "given",
    [
        [],
        [SubmittedAnswer()],
        [SubmittedAnswer((2,))],
        [SubmittedAnswer((-1,))],
        [SubmittedAnswer((0, 1))],
        [SubmittedAnswer((0,))] * 2,
    ],
)
def test_only_what_is_on_offer_is_an_answer(given: list[SubmittedAnswer]) -> None:
    with pytest.raises(UnprocessableRequest):
        questions.convert_answers_to_stored_list(asked_of(ONE), given)


FORM = {
    "mode": "form",
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "required": ["name", "size"],
        "properties": {
            "name": {"type": "string", "title": "Name", "minLength": 2, "maxLength": 5},
            "age": {"type": "integer", "minimum": 1, "maximum": 120},
            "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
            "agree": {"type": "boolean", "default": True},
            "tags": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["x", "y"]}},
        },
    },
}


def test_a_form_is_sent_back_in_the_types_of_its_fields() -> None:
    asked = asked_of(FORM, questions.ELICITATION)
    given = [
        SubmittedAnswer(text="Ann"),
        SubmittedAnswer(text="42"),
        SubmittedAnswer((1,)),
        SubmittedAnswer((0,)),
        SubmittedAnswer((0, 1)),
    ]
    stored = questions.convert_answers_to_stored_list(asked, given)
    content = {"name": "Ann", "age": 42, "size": "l", "agree": True, "tags": ["x", "y"]}
    assert questions.build_elicitation_content(asked, stored) == content


@pytest.mark.parametrize(
    ("place", "answer"),
    [
        (0, SubmittedAnswer()),
        (0, SubmittedAnswer(text="A")),
        (0, SubmittedAnswer(text="Annabella")),
        (1, SubmittedAnswer(text="4.5")),
        (1, SubmittedAnswer(text="0")),
        (1, SubmittedAnswer(text="nan")),
        (2, SubmittedAnswer()),
        (2, SubmittedAnswer(text="Small")),
        (3, SubmittedAnswer((2,))),
    ],
)
def test_a_field_of_a_form_takes_only_what_its_schema_allows(place: int, answer: SubmittedAnswer) -> None:
    given = [
        SubmittedAnswer(text="Ann"),
        SubmittedAnswer(),
        SubmittedAnswer((0,)),
        SubmittedAnswer(),
        SubmittedAnswer((0,)),
    ]
    given[place] = answer
    with pytest.raises(UnprocessableRequest):
        questions.convert_answers_to_stored_list(asked_of(FORM, questions.ELICITATION), given)


@pytest.mark.parametrize(
    "schema", [None, {}, {"properties": {"a": {"type": "object"}}}, {"properties": {"a": 5}}]
)
def test_a_form_of_unknown_shape_is_no_form(schema: Any) -> None:
    assert (
        questions.parse_call_question_or_none(
            questions.ELICITATION, {"message": "m", "requestedSchema": schema}
        )
        is None
    )


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "properties": {"a": TEXT}},
        {"type": "object", "properties": {"a": TEXT}, "allOf": [{"required": ["b"]}]},
        {"type": "object", "properties": {"a": TEXT}, "oneOf": [{}]},
        {"type": "object", "properties": {"a": TEXT}, "$ref": "#/$defs/x"},
        {"type": "object", "properties": {"a": {**TEXT, "$ref": "https://evil.example/schema"}}},
        {"type": "object", "properties": {"a": {**TEXT, "not": {"const": "x"}}}},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": TEXT}}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}},
        {"type": "object", "properties": {"a": {**TEXT, "enum": ["x"] * 101}}},
        {"type": "object", "properties": {"a": {**TEXT, "enum": ["x", 5]}}},
        {"type": "object", "properties": {"a": {**TEXT, "enum": []}}},
        {"type": "object", "properties": {"a": {**TEXT, "title": "x" * 30_000}}},
        {"type": "object", "properties": {f"f{number}": TEXT for number in range(31)}},
    ],
)
def test_a_form_that_says_more_than_mcp_allows_is_no_form(schema: Any) -> None:
    assert questions.parse_elicitation_or_none({"message": "m", "requestedSchema": schema}) is None


@pytest.mark.parametrize(
    ("name", "title", "is_secret"),
    [
        ("password", "", True),
        ("a", "API key", True),
        ("apiToken", "", True),
        ("pin", "", True),
        ("b", "Card number", True),
        ("user", "Your name", False),
        ("max_tokens", "How many tokens", False),
    ],
)
def test_a_field_that_asks_for_a_secret_is_known_by_its_name(name: str, title: str, is_secret: bool) -> None:
    schema = {"type": "object", "properties": {name: TEXT | ({"title": title} if title else {})}}
    asked = asked_of({"message": "m", "requestedSchema": schema}, questions.ELICITATION)
    assert asked.questions[0].is_secret is is_secret


@pytest.mark.parametrize(
    ("format_", "fitting", "other"),
    [
        ("email", "ada@example.org", "ada"),
        ("uri", "https://example.org", "example"),
        ("date", "2026-11-27", "tomorrow"),
        ("date-time", "2026-11-27T10:00:00+01:00", "2026-11-27T10:00"),
    ],
)
def test_a_text_of_a_format_is_held_to_it(format_: str, fitting: str, other: str) -> None:
    schema = {"type": "object", "properties": {"a": TEXT | {"format": format_}}}
    asked = asked_of({"message": "m", "requestedSchema": schema}, questions.ELICITATION)
    stored = questions.convert_answers_to_stored_list(asked, [SubmittedAnswer(text=fitting)])
    assert questions.build_elicitation_content(asked, stored) == {"a": fitting}
    with pytest.raises(UnprocessableRequest):
        questions.convert_answers_to_stored_list(asked, [SubmittedAnswer(text=other)])


def test_a_whole_number_is_sent_exactly() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "number"}}}
    asked = asked_of({"message": "m", "requestedSchema": schema}, questions.ELICITATION)
    given = [SubmittedAnswer(text="9007199254740993"), SubmittedAnswer(text="0.1")]
    content = questions.build_elicitation_content(
        asked, questions.convert_answers_to_stored_list(asked, given)
    )
    assert content == {"a": 9007199254740993, "b": 0.1}


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://pay.example/x?y=1", "pay.example"),
        ("https://gööd.example/", "xn--gd-fkaa.example"),
        ("https://good.example@evil.example/", None),
        ("https://evil.example\u202e/", None),
        ("https:///nowhere", None),
        ("https://x/" + "y" * 9_000, None),
        ("javascript:alert(1)", None),
    ],
)
def test_an_address_says_where_it_leads_or_is_not_shown(address: str, host: str | None) -> None:
    asked = questions.parse_elicitation_or_none({"mode": "url", "message": "m", "url": address})
    assert (asked.address_host if isinstance(asked, questions.AddressRequest) else None) == host


# --- requests ---------------------------------------------------------------------------------------------


def question_request(tool_input: Any = ONE, tool: str = "AskUserQuestion") -> PermissionRequest:
    return requested(
        plugin_id="claude-code",
        permission_type="ToolCall",
        target_resource=None,
        tool_name=tool,
        tool_input=tool_input,
        metadata={"hook": "PermissionRequest"},
        session_id="ses_q",
    )


@pytest.mark.django_db
def test_no_plain_approval_stands_for_an_answer() -> None:
    row, approver = question_request(), person()
    for more in ({}, {"scope": Scope.EVERYWHERE, "validity": Validity.HOUR}):
        with pytest.raises(BadRequest, match="is a question"):
            approvals.decide_request(row.request_id, person=approver, verdict="approved", now=NOW, **more)
    row.refresh_from_db()
    assert row.status == "pending"


@pytest.mark.django_db
def test_an_answer_is_stored_with_the_words_of_the_question() -> None:
    row, approver = question_request(), person()
    answer = RequestAnswer([SubmittedAnswer((1,))])
    with pytest.raises(SignalboxError):
        approvals.answer_request(row.request_id, answer, person=approver, judged="0" * 64)
    row = approvals.answer_request(row.request_id, answer, person=approver, judged=judged_card_digest(row))
    assert row.status == "approved"
    stored = {"question": "Which?", "chosen": [1], "labels": ["B"], "text": ""}
    assert row.context.answer == {"answers": [stored]}


@pytest.mark.django_db
def test_a_message_carries_the_question_and_its_choices() -> None:
    row = question_request()
    assert messages.describe_who_requests_what(row, "asks") == "claude-code asks a question: Which?"
    assert messages.describe_question(row) == "Which?\n- A\n- B"
    told = push.build_request_push_payload(row, "", row.created_at)
    assert (told["title"], told["body"], told["choices"]) == (
        "claude-code asks a question",
        "Which?",
        ["A", "B"],
    )


def options_request(*kinds: str) -> PermissionRequest:
    options = [
        {"optionId": f"o{place}", "name": f"Way {place}", "kind": kind} for place, kind in enumerate(kinds)
    ]
    return requested(
        plugin_id="claude-code",
        permission_type="ToolCall",
        target_resource=None,
        tool_name="Edit",
        tool_input={"file_path": "/a"},
        metadata={"hook": "session/request_permission", "options": options},
        session_id="ses_q",
    )


@pytest.mark.django_db
def test_one_yes_and_one_no_need_no_names() -> None:
    assert (
        question_requests.parse_request_question_or_none(
            options_request("allow_once", "allow_always", "reject_once")
        )
        is None
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("option", "status"), [("o0", "approved"), ("o1", "approved"), ("o2", "denied"), ("o3", "denied")]
)
def test_of_several_ways_the_chosen_one_is_stored(option: str, status: str) -> None:
    row, approver = options_request("allow_once", "allow_once", "reject_once", "reject_once"), person()
    judged = judged_card_digest(row)
    with pytest.raises(BadRequest):
        approvals.decide_request(row.request_id, person=approver, verdict="approved", judged=judged)
    with pytest.raises(UnprocessableRequest):
        approvals.answer_request(row.request_id, RequestAnswer(option="o9"), person=approver, judged=judged)
    row = approvals.answer_request(
        row.request_id, RequestAnswer(option=option), person=approver, judged=judged
    )
    assert row.status == status
    assert row.context.answer["option"] == option
