"""The rules for coding agents' tools: one page, in order, tried out on recorded calls before they are saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Max
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from coordinator import tool_rules as policy
from coordinator.access import Verdict
from coordinator.actions import tool_rules, transcripts
from coordinator.actors import person
from coordinator.calls import PREFIX, spoken
from coordinator.dialects.claude_code import SOURCE, SUBJECTS, subject_text
from coordinator.errors import SignalboxError
from coordinator.models import Agent, Event, McpTool
from coordinator.models.rules import RuleVerdict
from coordinator.tool_rules import Rule, Ruling
from dashboard.guards import approver, viewer
from dashboard.htmx import HtmxHttpRequest

MOST_TRIED = 500  # recorded calls that rules are tried out on
LOOKED_THROUGH = 50_000  # latest events among which those are looked for
SHOWN = 60
SOURCES = (SOURCE, transcripts.SOURCE)
SHORT = 160
MOST_OFFERED = 300


class RuleForm(forms.Form):
    """One rule."""

    tool = forms.CharField(max_length=500, required=False)
    pattern = forms.CharField(max_length=policy.LONGEST_PATTERN, required=False)
    verdict = forms.ChoiceField(choices=RuleVerdict.choices, initial=RuleVerdict.DENY)
    agents = forms.MultipleChoiceField(required=False, widget=forms.SelectMultiple(attrs={"size": 3}))
    reason = forms.CharField(max_length=1000, required=False)
    wait_seconds = forms.IntegerField(min_value=1, max_value=policy.LONGEST_WAIT, required=False)
    deny_at_deadline = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = list(Agent.objects.order_by("name").values_list("id", "name"))
        named = [one for one in self.initial.get("agents") or [] if one not in dict(known)]
        field = self.fields["agents"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [*known, *((one, one) for one in named)]


RuleForms = forms.formset_factory(
    RuleForm,
    can_order=True,
    can_delete=True,
    extra=1,
    max_num=policy.MOST_RULES,
    absolute_max=policy.MOST_RULES + 1,
)


@dataclass(frozen=True, slots=True)
class Tried:
    """A recorded call with what the saved rules say of it and what the edited ones would."""

    tool: str
    about: str
    session_id: str
    agent: str
    before: Ruling
    after: Ruling

    @property
    def changed(self) -> bool:
        """Say whether the edit makes a difference here."""
        return self.before.decision != self.after.decision


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that somebody asks about, and what would happen to it by the saved rules and the grants in force."""

    tool: str
    about: str
    agent: str
    rules: Ruling
    place: tuple[str, str] | None
    verdict: Verdict | None
    ruling: Ruling

    @property
    def server(self) -> str:
        """The MCP server that the grants are looked up under."""
        return self.verdict.server_id if self.verdict else self.place[0] if self.place else ""


@require_GET
@never_cache
@viewer
def rules(request: HtmxHttpRequest) -> HttpResponse:
    """Show the rules, and what would happen to a call that the address names."""
    saved = policy.saved()
    asked = _asked(request, saved)
    return _page(request, _forms_of(saved), policy.version(saved), _try(saved, saved), asked=asked)


def _asked(request: HtmxHttpRequest, saved: Sequence[Rule]) -> Asked | None:
    tool, about, agent = (request.GET.get(name, "").strip()[:2_000] for name in ("tool", "about", "agent"))
    if not tool:
        return None
    now = timezone.now()
    ruling = policy.by_rules(saved, tool, about, agent or None)
    verdict = policy.verdict_on(policy.policy_for([(tool, agent)], now), tool, agent, now)
    return Asked(tool, about, agent, ruling, policy.mcp_tool(tool), verdict, policy.together(ruling, verdict))


@require_POST
@never_cache
@approver
def save(request: HtmxHttpRequest) -> HttpResponse:
    """Try the edited rules out, or save them; what cannot be saved is shown with the reason."""
    forms_ = RuleForms(request.POST)
    seen = request.POST.get("version", "")
    if not forms_.is_valid():
        return _page(request, forms_, seen, None, status=422)
    wanted = _wanted(forms_)
    try:
        for rule in wanted:
            policy.check(rule)
        if request.POST.get("do") != "save":
            return _page(request, forms_, seen, _try(policy.saved(), wanted), tried=True)
        tool_rules.save(wanted, seen=seen, by=person(request.user), now=timezone.now())
    except SignalboxError as refusal:
        return _page(request, forms_, seen, None, problem=str(refusal.detail), status=refusal.status)
    messages.success(request, "Saved. The rules hold for every call from now on.")
    return redirect("claude_code:rules")


def _forms_of(saved: Sequence[Rule]) -> Any:
    initial = [
        {name: getattr(rule, name) for name in RuleForm.base_fields} | {"agents": list(rule.agents or ())}
        for rule in saved
    ]
    return RuleForms(initial=initial)


def _wanted(forms_: Any) -> list[Rule]:
    """Return the rules in their order; a row that names no tool is the empty one at the end."""
    filled = [
        form.cleaned_data for form in forms_.ordered_forms if (form.cleaned_data.get("tool") or "").strip()
    ]
    return [
        Rule(
            number,
            said["tool"].strip(),
            said["verdict"],
            said["pattern"],
            tuple(said["agents"]) or None,
            said["reason"].strip(),
            said["wait_seconds"],
            said["deny_at_deadline"],
        )
        for number, said in enumerate(filled, 1)
    ]


def _try(saved: Sequence[Rule], wanted: Sequence[Rule]) -> list[Tried]:
    """Return the latest recorded calls, each kind once, those first for which the edit makes a difference."""
    found: dict[tuple[str, str, str], Tried] = {}
    now, recorded = timezone.now(), list(_recorded())
    grants = policy.policy_for([(tool, agent or "") for tool, _, _, agent in recorded], now)
    for tool, tool_input, session_id, agent in recorded:
        about = subject_text(tool, tool_input)
        if (tool, about, agent) not in found:
            verdict = policy.verdict_on(grants, tool, agent or "", now)
            before, after = (
                policy.together(policy.by_rules(rules, tool, about, agent), verdict)
                for rules in (saved, wanted)
            )
            found[tool, about, agent] = Tried(tool, about[:SHORT], session_id, agent, before, after)
    return sorted(found.values(), key=lambda tried: not tried.changed)


def _recorded() -> Any:
    latest = Event.objects.aggregate(last=Max("id"))["last"] or 0
    calls = Event.objects.filter(
        id__gt=latest - LOOKED_THROUGH,
        event_type="pre_tool",
        context__source__in=SOURCES,
        tool_name__isnull=False,
    )
    rows = calls.order_by("-id").values_list("tool_name", "tool_input", "session_id", "session__agent_name")
    return rows[:MOST_TRIED]


def _mcp_tools() -> list[str]:
    """Return the known tools of MCP servers as Claude Code calls them."""
    known = McpTool.objects.order_by("server_id", "name").values_list("server_id", "name")
    return [f"{PREFIX}{spoken(server)}__{name}" for server, name in known[:MOST_OFFERED]]


def _page(
    request: HtmxHttpRequest,
    forms_: Any,
    version: str,
    found: list[Tried] | None,
    *,
    tried: bool = False,
    problem: str = "",
    asked: Asked | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        "asked": asked,
        "agents": Agent.objects.order_by("name").values_list("id", "name"),
        "tools": [*SUBJECTS, *_mcp_tools()],
        "forms": forms_,
        "version": version,
        "found": (found or [])[:SHOWN],
        "calls": len(found or []),
        "changed": sum(one.changed for one in found or []),
        "tried": tried,
        "problem": problem,
    }
    return render(request, "claude_code/rules.html", context, status=status)
