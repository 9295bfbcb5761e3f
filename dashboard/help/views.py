"""The help: a list of its pages with search, and each page."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import render

from coordinator.identity.declarations import require_safe
from dashboard.frame.guards import require_sign_in
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.frame.themes import read_theme_cookie
from dashboard.help.pages import PAGES, PICTURES, SUBJECTS, read_picture
from dashboard.help.rendering import render_page
from dashboard.help.search import MAX_QUERY_LENGTH, search_help, search_terms
from dashboard.help.sections import load_help_page_sections


@require_safe
@require_sign_in
def show_help_index(request: HtmxHttpRequest) -> HttpResponse:
    query = request.GET.get("q", "")[:MAX_QUERY_LENGTH].strip()
    context = {
        "subjects": SUBJECTS,
        "query": query,
        "searched": bool(search_terms(query)),
        "results": search_help(query),
    }
    return render(request, "help/index.html", context)


@require_safe
@require_sign_in
def show_help_page(request: HtmxHttpRequest, name: str) -> HttpResponse:
    help_page = PAGES.get(name)
    if help_page is None:
        raise Http404(f"There is no help page {name}.")
    names = list(PAGES)
    index = names.index(name)
    context = {
        "subjects": SUBJECTS,
        "shown": help_page,
        "body": render_page(help_page, read_theme_cookie(request).scheme),
        "contents": [section for section in load_help_page_sections(name) if section.level > 1],
        "previous": PAGES[names[index - 1]] if index else None,
        "next": PAGES[names[index + 1]] if index + 1 < len(names) else None,
    }
    return render(request, "help/page.html", context)


@require_safe
@require_sign_in
def show_help_picture(_request: HtmxHttpRequest, name: str) -> HttpResponse:
    if name not in PICTURES:
        raise Http404(f"There is no picture {name}.")
    return HttpResponse(read_picture(name), content_type="image/webp")
