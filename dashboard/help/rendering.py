"""Renders a help page as HTML."""

from __future__ import annotations

from django.urls import reverse

from dashboard.help.pages import PAGES, HelpPage
from dashboard.rendering.allowance import RenderingAllowance
from dashboard.text.markdown import RenderedHtml, render_documentation_page

RENDERING_SECONDS = 5.0  # generous for a busy machine; our own text takes milliseconds


def render_page(page: HelpPage, scheme: str) -> RenderedHtml:
    """Return the page as HTML without its first heading.

    Args:
        page: The help page.
        scheme: The reader's colour scheme, as in `<meta name="color-scheme">`.
    """
    _, _, body = page.read_markdown().partition("\n")
    with RenderingAllowance(RENDERING_SECONDS).share_allowance_in_block():
        return render_documentation_page(
            body, base=reverse("help:index"), pages=" ".join(PAGES), scheme=scheme
        )
