"""The page of rules for coding agents' tools: ordered, and tested on recorded calls before they are saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.text import get_text_list
from django.views.decorators.cache import never_cache

from coordinator.actions.policy import tool_rules
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_GET, require_POST
from coordinator.mcp.servers.names import PREFIX, name_in_calls
from coordinator.models import Agent, McpTool
from coordinator.models.agent_names import agent_labels_by_id
from coordinator.models.rules import RuleVerdict
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.grants.access import Verdict
from coordinator.policy.rules import tool_kinds
from coordinator.policy.rules import tool_rules as policy
from coordinator.policy.rules.call_history import LONGEST_REPETITION, parse_repetition_condition
from coordinator.policy.rules.call_text import build_call_text_from_description
from coordinator.policy.rules.ready_made_allowing import ALLOWING_RULES
from coordinator.policy.rules.rule_checks import rule_in_terms_or_none, warnings_by_rule_number
from coordinator.policy.rules.terms import (
    IGNORE_UNREADABLE,
    LONGEST_TERMS,
    MATCH_UNREADABLE,
    split_term_lines,
)
from coordinator.policy.rules.tool_rules import DecisionRule, Ruling
from coordinator.sessions.agent_programs import AGENT_TITLES
from dashboard.frame.guards import require_approver, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.frame.stored_choices import (
    StoredChoiceField,
    StoredMultipleChoiceField,
    set_choices_and_keep_saved_values,
)
from dashboard.rules import question
from dashboard.rules.question import RulesOnTrial
from dashboard.rules.sentences import SentencePart, build_rule_sentence_parts
from dashboard.rules.views.ready_made import load_ready_made_switches
from dashboard.rules.views.trials import start_trial_and_build_context

MOST_OFFERED = 300
EVERY_AGENT = "*"
TERM_FIELDS = ("runs", "touches", "reaches")
# Prefix of a button's value, before the number of the rule whose pattern the button converts into terms.
IN_TERMS = "in-terms-"
UNREADABLE_LABELS = (
    ("", "Counts as a match where this rule says what a call does, else not"),
    (MATCH_UNREADABLE, "Counts as a match"),
    (IGNORE_UNREADABLE, "Does not count"),
)


def build_terms_field() -> forms.CharField:
    return forms.CharField(
        max_length=LONGEST_TERMS,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
    )


class ToolRuleForm(forms.Form):
    tool = forms.CharField(max_length=500, required=False)
    pattern = forms.CharField(max_length=policy.LONGEST_PATTERN, required=False)
    program = StoredChoiceField(required=False)
    verdict = StoredChoiceField(initial=RuleVerdict.DENY)
    agents = StoredMultipleChoiceField(
        required=False, initial=[EVERY_AGENT], widget=forms.SelectMultiple(attrs={"size": 3})
    )
    # Sent if the form contained the list of agents. Without it, an empty list is not the person's choice.
    agents_listed = forms.BooleanField(required=False, initial=True, widget=forms.HiddenInput)
    reason = forms.CharField(max_length=1000, required=False)
    wait_seconds = forms.IntegerField(min_value=1, max_value=policy.LONGEST_WAIT, required=False)
    deny_at_deadline = forms.BooleanField(required=False)
    runs = build_terms_field()
    touches = build_terms_field()
    reaches = build_terms_field()
    unreadable = StoredChoiceField(required=False)
    ready_made = forms.CharField(max_length=100, required=False, widget=forms.HiddenInput)
    is_off = forms.BooleanField(required=False)
    repeats = forms.CharField(max_length=LONGEST_REPETITION, required=False)
    stops_turn = forms.BooleanField(required=False)

    def __init__(self, *args: Any, named_agents: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agents = Agent.objects.exclude(pk=None).order_by("name").values_list("id", "name")
        set_choices_and_keep_saved_values(
            self, "agents", [(EVERY_AGENT, "Every agent"), *agents], saved=named_agents or ()
        )
        set_choices_and_keep_saved_values(self, "program", [("", "Every program"), *AGENT_TITLES.items()])
        set_choices_and_keep_saved_values(self, "verdict", RuleVerdict.choices)
        set_choices_and_keep_saved_values(self, "unreadable", UNREADABLE_LABELS)

    def clean_agents(self) -> list[str]:
        """Raise ValidationError if every agent and single agents are chosen together, which is ambiguous."""
        agents: list[str] = self.cleaned_data["agents"]
        if EVERY_AGENT in agents and len(agents) > 1:
            raise forms.ValidationError("Choose every agent, or some agents, not both.")
        return agents

    def clean(self) -> dict[str, Any]:
        """Refuse a rule that names no tool, and handle a form that did not contain the list of agents.

        A rule that asks or denies then applies to every agent; any other rule is refused. A form without any text is
        no rule.
        """
        cleaned = super().clean() or self.cleaned_data
        texts = ("pattern", *TERM_FIELDS, "repeats", "reason", "ready_made")
        if not (cleaned.get("tool") or "").strip() and any(cleaned.get(name) for name in texts):
            self.add_error("tool", "Name a tool. “*” means every tool.")
        is_chosen = cleaned.get("agents") or cleaned.get("agents_listed")
        if is_chosen or not (cleaned.get("tool") or "").strip() or "agents" in self.errors:
            return cleaned
        if cleaned.get("verdict") in {RuleVerdict.ASK, RuleVerdict.DENY}:
            cleaned["agents"] = [EVERY_AGENT]
        else:
            self.add_error("agents", "Choose every agent, or some agents.")
        return cleaned

    @property
    def has_terms(self) -> bool:
        """Return whether a field that describes what a call does is filled in."""
        return any(self[name].value() for name in (*TERM_FIELDS, "unreadable", "repeats"))

    @property
    def has_folded_values(self) -> bool:
        """Return whether a field in the folded part of the form is filled in."""
        is_for_some = self["agents"].value() != [EVERY_AGENT]
        return is_for_some or any(
            self[name].value() for name in ("program", "wait_seconds", "deny_at_deadline", "stops_turn")
        )


RuleForms = forms.formset_factory(
    ToolRuleForm,
    can_order=True,
    can_delete=True,
    extra=1,
    max_num=policy.MOST_RULES,
    absolute_max=policy.MOST_RULES + 1,
)


@dataclass(frozen=True, slots=True)
class RuleCard:
    """A form of the list, with its rule as a sentence and warnings about it."""

    form: ToolRuleForm
    position: int  # in the formset
    rule: DecisionRule | None = None  # None for the empty form and for an invalid one
    sentence: Sequence[SentencePart] = ()
    warnings: Sequence[str] = ()
    can_be_in_terms: bool = False

    @property
    def is_new(self) -> bool:
        return self.rule is None and not self.form.errors


@dataclass(frozen=True, slots=True)
class TestedCall:
    """A call that a person tests against the saved rules and the grants in force."""

    tool: str
    about: str
    agent: str
    program: str
    rules: Ruling  # the ruling of the rules alone
    place: tuple[str, str] | None  # server and tool if it is a tool of an MCP server
    verdict: Verdict | None  # of the grants
    ruling: Ruling  # the stricter of both

    @property
    def tested_server(self) -> str:
        return self.verdict.server_id if self.verdict else self.place[0] if self.place else ""

    @property
    def explanation_url(self) -> str:
        """Return the URL of the page that explains why the grants allow or deny the call."""
        query_values = {
            "agent": self.agent,
            "server": self.tested_server,
            "tool": self.place[1] if self.place else "",
        }
        return f"{reverse('mcp:why')}?{urlencode(query_values, quote_via=quote)}"


@require_GET
@never_cache
@require_viewer_role
def list_tool_rules(request: HtmxHttpRequest) -> HttpResponse:
    """Show the rules, and how they would decide the call that the query string describes."""
    saved = policy.load_saved_tool_rules()
    tested_call = judge_call_from_query(request, saved)
    return render_tool_rules_page(
        request,
        build_tool_rule_formset(saved),
        policy.digest_tool_rules(saved),
        RulesOnTrial(),
        tested_call=tested_call,
    )


def judge_call_from_query(request: HtmxHttpRequest, saved: Sequence[DecisionRule]) -> TestedCall | None:
    field_names = ("tool", "about", "agent", "program")
    tool, about, agent, program = (request.GET.get(name, "").strip()[:2_000] for name in field_names)
    if not tool:
        return None
    now = timezone.now()
    grants = policy.load_grants_for_calls([(tool, agent)], now)
    servers = grants.managed.servers
    text = build_call_text_from_description(tool, about)
    ruling = policy.tool_ruling_or_no_opinion(saved, tool, text, agent or None, program, servers=servers)
    verdict, server_tool = (
        grants.decide_by_applicable_grants(tool, agent, now),
        grants.managed.resolve_server_tool_of_call(tool),
    )
    return TestedCall(
        tool,
        about,
        agent,
        program,
        ruling,
        server_tool,
        verdict,
        policy.stricter_of_ruling_and_grant_verdict(ruling, verdict),
    )


@require_POST
@never_cache
@require_approver
def save_or_test_posted_rules(request: HtmxHttpRequest) -> HttpResponse:
    """Save the posted rules, or test them without saving. If they are refused, show them with the reason."""
    named_agents = sorted({agent for rule in policy.load_saved_tool_rules() for agent in rule.agents or ()})
    forms_ = RuleForms(request.POST, form_kwargs={"named_agents": named_agents})
    version, do = request.POST.get("version", ""), request.POST.get("do", "")
    if not forms_.is_valid():
        return render_tool_rules_page(request, forms_, version, None, status=422)
    posted_tool_rules = posted_tool_rules_of_forms(forms_)
    if do == "save" and not deciders.can_user_edit_policy(request.user):
        return render_tool_rules_page(
            request, forms_, version, None, problem=deciders.ADMINS_EDIT, status=403
        )
    try:
        for rule in posted_tool_rules:
            policy.validate_tool_rule(rule)
        if do.startswith(IN_TERMS):
            posted_tool_rules = rules_with_one_pattern_converted(posted_tool_rules, do.removeprefix(IN_TERMS))
            forms_ = build_tool_rule_formset(posted_tool_rules)
        if do != "save":
            return render_tool_rules_page(
                request, forms_, version, question.build_trial_of_rules(posted_tool_rules)
            )
        tool_rules.replace_tool_rules(
            posted_tool_rules, seen_version=version, actor=person_actor(request.user), now=timezone.now()
        )
    except SignalboxError as refusal:
        return render_tool_rules_page(
            request, forms_, version, None, problem=str(refusal.detail), status=refusal.status
        )
    messages.success(request, "The rules are saved and apply to every call from now on.")
    return redirect("rules:list")


def build_tool_rule_formset(saved: Sequence[DecisionRule]) -> Any:
    initial = [
        {name: getattr(rule, name) for name in ToolRuleForm.base_fields if name != "agents_listed"}
        | {"agents_listed": True, "agents": [EVERY_AGENT] if rule.agents is None else list(rule.agents)}
        for rule in saved
    ]
    return RuleForms(initial=initial)


def rules_with_one_pattern_converted(rules: Sequence[DecisionRule], number: str) -> list[DecisionRule]:
    """Return the rules, with the pattern of rule `number` converted into terms if that is possible."""
    return [(rule_in_terms_or_none(rule) or rule) if str(rule.number) == number else rule for rule in rules]


def build_rule_cards(forms_: Any) -> list[RuleCard]:
    """Return the forms in the order of their rules, each with the rule that it would save."""
    if not forms_.is_bound:
        return build_cards_of_rule_forms(forms_, rules_from_initial_form_data(forms_), list(forms_))
    if not forms_.is_valid():
        return [RuleCard(form, place) for place, form in enumerate(forms_)]
    deleted = set(map(id, forms_.deleted_forms))
    filled = [form for form in forms_.ordered_forms if (form.cleaned_data.get("tool") or "").strip()]
    rest = [form for form in forms_ if form not in filled and id(form) not in deleted]
    return build_cards_of_rule_forms(forms_, posted_tool_rules_of_forms(forms_), [*filled, *rest])


def build_cards_of_rule_forms(
    forms_: Any, rules: Sequence[DecisionRule], listed: Sequence[ToolRuleForm]
) -> list[RuleCard]:
    positions = {id(form): place for place, form in enumerate(forms_)}
    warnings, labels = warnings_by_rule_number(rules), agent_labels_by_id()
    cards = [
        RuleCard(
            form,
            positions[id(form)],
            rule,
            build_rule_sentence_parts(rule, labels),
            warnings.get(rule.number, ()),
            rule_in_terms_or_none(rule) is not None,
        )
        for form, rule in zip(listed, rules, strict=False)
    ]
    return [*cards, *(RuleCard(form, positions[id(form)]) for form in listed[len(rules) :])]


def rules_from_initial_form_data(forms_: Any) -> list[DecisionRule]:
    """Return the rules from which the forms were built."""
    return [
        DecisionRule(
            number,
            **{
                name: value
                for name, value in values.items()
                if name in DecisionRule.__slots__ and name != "agents"
            },
            agents=None if values["agents"] == [EVERY_AGENT] else tuple(values["agents"]),
        )
        for number, values in enumerate(forms_.initial or (), 1)
    ]


def posted_tool_rules_of_forms(forms_: Any) -> list[DecisionRule]:
    """Return the posted rules in their order, without rows that name no tool."""
    filled = [
        form.cleaned_data for form in forms_.ordered_forms if (form.cleaned_data.get("tool") or "").strip()
    ]
    return [
        DecisionRule(
            number,
            rule_fields["tool"].strip(),
            rule_fields["verdict"],
            rule_fields["pattern"],
            None if rule_fields["agents"] == [EVERY_AGENT] else tuple(rule_fields["agents"]),
            rule_fields["reason"].strip(),
            rule_fields["wait_seconds"],
            rule_fields["deny_at_deadline"],
            rule_fields["program"],
            normalize_term_lines_text(rule_fields["runs"]),
            normalize_term_lines_text(rule_fields["touches"]),
            normalize_term_lines_text(rule_fields["reaches"]),
            rule_fields["unreadable"],
            rule_fields["ready_made"],
            rule_fields["is_off"],
            normalize_repetition(rule_fields["repeats"]),
            rule_fields["stops_turn"],
        )
        for number, rule_fields in enumerate(filled, 1)
    ]


def normalize_repetition(text: str) -> str:
    """Return a repetition condition as it is stored.

    An invalid one is returned unchanged, to be refused later.
    """
    try:
        return str(parse_repetition_condition(text) or "")
    except SignalboxError:
        return text


def normalize_term_lines_text(text: str) -> str:
    return "\n".join(split_term_lines(text))


def list_builtin_tool_names() -> list[str]:
    """Return the names of the tools that agent programs have built in, without duplicates."""
    return list(dict.fromkeys(tool for dialect in DIALECTS.values() for tool in dialect.tools))


@dataclass(frozen=True, slots=True)
class ProgramTools:
    """What an agent program calls its tools, by kind in the order of KINDS, and how it names an MCP tool."""

    title: str
    by_kind: list[list[str]]
    mcp_name: str
    has_grants: bool


def list_tools_by_program() -> list[ProgramTools]:
    return [
        ProgramTools(
            AGENT_TITLES[dialect.name],
            [[tool for tool in dialect.tools if tool in kind.tools] for kind in tool_kinds.KINDS.values()],
            dialect.mcp_name.format(server="github", tool="create_issue"),
            dialect.has_mcp_server_names,
        )
        for dialect in DIALECTS.values()
    ]


def load_mcp_tool_call_names() -> list[str]:
    """Return the known tools of MCP servers by the names that agents use, at most MOST_OFFERED."""
    mcp_tool_rows = McpTool.objects.order_by("server_id", "name").values_list("server_id", "name")
    return [
        f"{PREFIX}{name_in_calls(server)}__{name_in_calls(name)}"
        for server, name in mcp_tool_rows[:MOST_OFFERED]
    ]


def render_tool_rules_page(
    request: HtmxHttpRequest,
    forms_: Any,
    version: str,
    question_: RulesOnTrial | None,
    *,
    problem: str = "",
    tested_call: TestedCall | None = None,
    status: int = 200,
) -> HttpResponse:
    """Render the page of rules. Without `question_` there is no trial, because the rules were refused."""
    context: dict[str, Any] = {
        "tried": question_ is not None and question_.has_unsaved_edits,
        "problem": problem,
    }
    if question_ is not None:
        query_dict = QueryDict("changed=1" if question_.has_unsaved_edits else "")
        context |= start_trial_and_build_context(question_, query_dict)
    if wants_fragment(request):
        return render(request, "rules/_tried.html", context | {"forms": forms_}, status=status)
    context |= {
        "asked": tested_call,
        "agents": Agent.objects.exclude(pk=None).order_by("name").values_list("id", "name"),
        "programs": AGENT_TITLES.items(),
        "cannot_ask": get_text_list(
            [AGENT_TITLES[dialect.name] for dialect in DIALECTS.values() if not dialect.can_ask], "and"
        ),
        "tools": [*list_builtin_tool_names(), *load_mcp_tool_call_names()],
        "kinds": tool_kinds.KINDS.items(),
        "tools_of_programs": list_tools_by_program(),
        "forms": forms_,
        "ready_made": load_ready_made_switches(),
        "allowing": load_ready_made_switches(ALLOWING_RULES),
        "version": version,
        "cards": build_rule_cards(forms_),
    }
    return render(request, "rules/list.html", context, status=status)
