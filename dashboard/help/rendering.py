"""A help page as HTML."""

from __future__ import annotations

from django.urls import reverse

from dashboard.help.pages import PAGES, HelpPage
from dashboard.rendering.allowance import RenderingAllowance
from dashboard.text.markdown import RenderedHtml, render_documentation_page

RENDERING_SECONDS = 5.0  # the text is ours and always takes some milliseconds: a busy machine is waited for


def render_page(page: HelpPage, scheme: str) -> RenderedHtml:
    """Return the page as HTML without its first heading.

    scheme: the reader's colour scheme, as in `<meta name="color-scheme">`.
    """
    _, _, body = page.read_markdown().partition("\n")
    with RenderingAllowance(RENDERING_SECONDS).share_allowance_in_block():
        return render_documentation_page(
            body, base=reverse("help:index"), pages=" ".join(PAGES), scheme=scheme
        )
