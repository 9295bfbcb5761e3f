"""The web: pages fetched, searches made."""

from __future__ import annotations

from typing import Any

from dashboard.looks.inputs import Fields
from dashboard.looks.parts import MOST_FACTS, Look, Part, output_parts, string, text_part


def fetch(name: str, given: dict[str, Any], came: Any) -> Look | None:
    fields = Fields(given)
    url, question = fields.take("url", "uri"), fields.take("prompt")
    if not url:
        return None
    answer = came.get("result") if isinstance(came, dict) and isinstance(came.get("result"), str) else None
    outputs = [text_part(answer, kind="markdown", label="Answer")] if answer else output_parts(came)
    note = (
        f"{came['code']} {string(came, 'codeText')}".strip()
        if isinstance(came, dict) and isinstance(came.get("code"), int)
        else ""
    )
    return Look(
        "external",
        name,
        title=url,
        mono=True,
        note=note,
        inputs=[*fields.text(question, label="Question"), *fields.others()],
        outputs=outputs,
    )


def search(name: str, given: dict[str, Any], came: Any) -> Look | None:
    fields = Fields(given)
    query = fields.take("query", "q", "search_query")
    if not query:
        return None
    return Look("search", name, title=query, inputs=fields.others(), outputs=_results(came))


def _results(came: Any) -> list[Part]:
    results = came.get("results") if isinstance(came, dict) else None
    if not isinstance(results, list) or len(results) > MOST_FACTS:
        return output_parts(came)
    pairs: list[tuple[str, str]] = []
    texts: list[Part] = []
    for result in results:
        if isinstance(result, str):
            texts.append(text_part(result, kind="markdown", label="Answer"))
            continue
        hits = result.get("content", [result]) if isinstance(result, dict) else []
        pairs += [
            (string(hit, "title") or "link", string(hit, "url")) for hit in hits if isinstance(hit, dict)
        ]
    if len(pairs) > MOST_FACTS:
        return output_parts(came)
    return ([Part("facts", pairs, label="Results")] if pairs else []) + texts


TOOLS = {
    **dict.fromkeys(("webfetch", "fetch", "fetchurl", "httpget"), fetch),
    **dict.fromkeys(("websearch", "searchweb"), search),
}
