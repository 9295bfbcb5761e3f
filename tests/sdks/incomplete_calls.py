"""Hands every adapter calls whose objects lack what it reads, and prints what each answered as JSON.

Run in the SDKs' environment, never imported. The server is one that nobody reaches.
"""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

from signalbox_sdk import Connection, adk, claude, langgraph, openai, pydantic

CONNECTION = Connection("http://127.0.0.1:1", "sbx_x", patience=0)
NOTHING: Any = SimpleNamespace()
SERVER: Any = {"connection": CONNECTION}


async def ask_all() -> dict[str, str]:
    can_use_tool: Any = claude.approve_tool("talk-1", **SERVER)
    answers: dict[str, Any] = {"claude can_use_tool": await can_use_tool("delete", {}, NOTHING)}
    for name, matcher in (
        ("approve", claude.approve_hook("talk-1", **SERVER)),
        ("defer", claude.defer_tool("talk-1", **SERVER)),
    ):
        hook: Any = matcher.hooks[0]
        answers[f"claude {name}"] = await hook({"tool_name": "delete"}, None, NOTHING)
    guardrail: Any = openai.approve_tool("talk-1", **SERVER)
    answers["openai"] = (await guardrail.guardrail_function(NOTHING)).behavior
    for callback in (adk.approve_tool, adk.confirm_tool):
        before: Any = callback("talk-1", tools={"delete"}, **SERVER)
        answers[f"adk {callback.__name__}"] = await before(NOTHING, {}, NOTHING)
    confirm: Any = adk.confirm_tool("talk-1", **SERVER)
    answers["adk confirmed"] = await confirm(NOTHING, {}, SimpleNamespace(tool_confirmation=True))
    request: Any = SimpleNamespace(tool_call={"name": "delete", "args": None})
    for wrapper in (langgraph.approve_tool, langgraph.interrupt_tool):
        wrap: Any = wrapper("talk-1", **SERVER)
        answers[f"langgraph {wrapper.__name__}"] = wrap(request, run_call)
    asked: Any = SimpleNamespace(tool_call_id="call-1")
    requests: Any = SimpleNamespace(approvals=[asked], build_results=lambda approvals: approvals)
    answers["pydantic"] = (await pydantic.answer_requests(requests, "talk-1", **SERVER))["call-1"]
    return {name: str(answer) for name, answer in answers.items()}


async def report_all() -> None:
    """Report runs of which nothing can be read; raises where one is not merely logged."""
    reporting: Any = openai.report_run("talk-1", **SERVER)
    await reporting.on_llm_end(NOTHING, NOTHING, NOTHING)
    await reporting.on_tool_end(SimpleNamespace(tool_call_id="1"), NOTHING, NOTHING, "")
    plugin: Any = adk.report_run("talk-1", **SERVER)
    await plugin.on_user_message_callback(invocation_context=NOTHING, user_message=NOTHING)
    await plugin.after_model_callback(callback_context=NOTHING, llm_response=NOTHING)
    await plugin.after_tool_callback(tool=NOTHING, tool_args={}, tool_context=NOTHING, result={})
    await plugin.on_tool_error_callback(tool=NOTHING, tool_args={}, tool_context=NOTHING, error=ValueError())
    handler: Any = langgraph.report_run("talk-1", **SERVER)
    handler.on_chat_model_start({}, [[NOTHING]], run_id=1)
    handler.on_llm_end(NOTHING, run_id=1)
    capability: Any = pydantic.report_run("talk-1", **SERVER)
    assert await capability.after_model_request(NOTHING, request_context=NOTHING, response=NOTHING) is NOTHING
    executed = {"call": NOTHING, "tool_def": NOTHING, "args": {}}
    assert await capability.after_tool_execute(NOTHING, **executed, result="result") == "result"


def run_call(*_: Any) -> str:
    return "THE CALL RAN"


asyncio.run(report_all())
sys.stdout.write(json.dumps(asyncio.run(ask_all())))
