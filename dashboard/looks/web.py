"""Displays of web tools: fetch and search."""

from __future__ import annotations

from typing import Any

from dashboard.looks.inputs import InputFields
from dashboard.looks.parts import (
    MOST_FACTS,
    CallDisplay,
    DisplayPart,
    build_output_parts,
    build_text_part,
    first_string_field_or_empty,
)


def build_web_fetch_call_display(name: str, tool_input: dict[str, Any], output: Any) -> CallDisplay | None:
    fields = InputFields(tool_input)
    url, question = fields.pop_first_text_field("url", "uri"), fields.pop_first_text_field("prompt")
    if not url:
        return None
    answer = (
        output.get("result") if isinstance(output, dict) and isinstance(output.get("result"), str) else None
    )
    outputs = (
        [build_text_part(answer, kind="markdown", label="Answer")] if answer else build_output_parts(output)
    )
    note = (
        f"{output['code']} {first_string_field_or_empty(output, 'codeText')}".strip()
        if isinstance(output, dict) and isinstance(output.get("code"), int)
        else ""
    )
    return CallDisplay(
        "external",
        name,
        title=url,
        mono=True,
        note=note,
        inputs=[
            *fields.build_parts_of_popped_text(question, label="Question"),
            *fields.build_remaining_parts(),
        ],
        outputs=outputs,
    )


def build_web_search_call_display(name: str, tool_input: dict[str, Any], output: Any) -> CallDisplay | None:
    fields = InputFields(tool_input)
    query = fields.pop_first_text_field("query", "q", "search_query")
    if not query:
        return None
    return CallDisplay(
        "search",
        name,
        title=query,
        inputs=fields.build_remaining_parts(),
        outputs=build_web_search_result_parts(output),
    )


def build_web_search_result_parts(output: Any) -> list[DisplayPart]:
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
            (
                first_string_field_or_empty(hit, "title") or "link",
                first_string_field_or_empty(hit, "url"),
            )
            for hit in hits
            if isinstance(hit, dict)
        ]
    if len(pairs) > MOST_FACTS:
        return build_output_parts(output)
    return ([DisplayPart("facts", pairs, label="Results")] if pairs else []) + texts


TOOLS = {
    **dict.fromkeys(("webfetch", "fetch", "fetchurl", "httpget"), build_web_fetch_call_display),
    **dict.fromkeys(("websearch", "searchweb"), build_web_search_call_display),
}
