"""The web: pages fetched, searches made."""

from __future__ import annotations

from typing import Any

from dashboard.looks.inputs import InputFields
from dashboard.looks.parts import (
    MOST_FACTS,
    CallDisplay,
    DisplayPart,
    build_output_parts,
    build_text_part,
    first_string_value,
)


def display_web_fetch(name: str, tool_input: dict[str, Any], output: Any) -> CallDisplay | None:
    fields = InputFields(tool_input)
    url, question = fields.take_text("url", "uri"), fields.take_text("prompt")
    if not url:
        return None
    answer = (
        output.get("result") if isinstance(output, dict) and isinstance(output.get("result"), str) else None
    )
    outputs = (
        [build_text_part(answer, kind="markdown", label="Answer")] if answer else build_output_parts(output)
    )
    note = (
        f"{output['code']} {first_string_value(output, 'codeText')}".strip()
        if isinstance(output, dict) and isinstance(output.get("code"), int)
        else ""
    )
    return CallDisplay(
        "external",
        name,
        title=url,
        mono=True,
        note=note,
        inputs=[*fields.build_taken_text_part(question, label="Question"), *fields.build_remaining_parts()],
        outputs=outputs,
    )


def display_web_search(name: str, tool_input: dict[str, Any], output: Any) -> CallDisplay | None:
    fields = InputFields(tool_input)
    query = fields.take_text("query", "q", "search_query")
    if not query:
        return None
    return CallDisplay(
        "search",
        name,
        title=query,
        inputs=fields.build_remaining_parts(),
        outputs=build_search_result_parts(output),
    )


def build_search_result_parts(output: Any) -> list[DisplayPart]:
    results = output.get("results") if isinstance(output, dict) else None
    if not isinstance(results, list) or len(results) > MOST_FACTS:
        return build_output_parts(output)
    pairs: list[tuple[str, str]] = []
    texts: list[DisplayPart] = []
    for result in results:
        if isinstance(result, str):
            texts.append(build_text_part(result, kind="markdown", label="Answer"))
            continue
        hits = result.get("content", [result]) if isinstance(result, dict) else []
        pairs += [
            (first_string_value(hit, "title") or "link", first_string_value(hit, "url"))
            for hit in hits
            if isinstance(hit, dict)
        ]
    if len(pairs) > MOST_FACTS:
        return build_output_parts(output)
    return ([DisplayPart("facts", pairs, label="Results")] if pairs else []) + texts


TOOLS = {
    **dict.fromkeys(("webfetch", "fetch", "fetchurl", "httpget"), display_web_fetch),
    **dict.fromkeys(("websearch", "searchweb"), display_web_search),
}
