"""Reads a page as a browser would and names what a strict Content-Security-Policy would stop."""

from __future__ import annotations

from html.parser import HTMLParser


class _Inline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "style":
            self.found.append("<style>")
        if tag == "script" and "src" not in values and values.get("type") != "application/json":
            self.found.append("<script> without src")
        for name, value in attrs:
            if name == "style" or name.startswith(("on", "hx-on")):
                self.found.append(f"{name}= on <{tag}>")
            if name in {"href", "src", "action", "formaction"} and (value or "").startswith("javascript:"):
                self.found.append(f"javascript: in {name} of <{tag}>")


def inline_parts(html: str) -> list[str]:
    """Return every inline style, script and handler in `html`."""
    reader = _Inline()
    reader.feed(html)
    return reader.found
