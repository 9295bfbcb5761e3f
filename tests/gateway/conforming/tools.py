"""The tools of the conforming server, each as the suite's scenario of it describes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import anyio
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged

from tests.gateway.conforming.questions import (
    A_TEXT,
    DEFAULTS,
    ENUMS,
    IMAGE,
    NAME,
    ROOTS,
    SCHEMA_2020,
    SOUND,
    Context,
    Json,
    an_object,
    answers,
    asked,
    form,
    model,
    needs,
    require,
    state_of,
    text,
)


class Tools:
    """The tools, by the names of the methods."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.tools: dict[str, tuple[Json, Callable[[Context, Json], Awaitable[Json]]]] = {}
        for name in dir(self):
            if name.startswith("test_") or name == "json_schema_2020_12_tool":
                self.tools[name] = (SCHEMAS.get(name, {"type": "object"}), getattr(self, name))

    # --- tools that answer at once ---------------------------------------------------------------------

    async def test_simple_text(self, ctx: Context, given: Json) -> Json:
        return text("This is a simple text response for testing.")

    async def test_image_content(self, ctx: Context, given: Json) -> Json:
        return {"content": [IMAGE]}

    async def test_audio_content(self, ctx: Context, given: Json) -> Json:
        return {"content": [{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}]}

    async def test_embedded_resource(self, ctx: Context, given: Json) -> Json:
        held = {"uri": "test://embedded-resource", "mimeType": "text/plain"}
        words = "This is an embedded resource content."
        return {"content": [{"type": "resource", "resource": held | {"text": words}}]}

    async def test_multiple_content_types(self, ctx: Context, given: Json) -> Json:
        held = {"uri": "test://mixed-content-resource", "mimeType": "application/json"}
        resource = {"type": "resource", "resource": held | {"text": '{"test":"data","value":123}'}}
        return {"content": [*text("Multiple content types test:")["content"], IMAGE, resource]}

    async def test_error_handling(self, ctx: Context, given: Json) -> Json:
        return text("This tool intentionally returns an error for testing") | {"isError": True}

    async def json_schema_2020_12_tool(self, ctx: Context, given: Json) -> Json:
        return text(json.dumps(given))

    async def test_custom_headers(self, ctx: Context, given: Json) -> Json:
        return text(json.dumps(given))

    # --- what is told meanwhile ------------------------------------------------------------------------

    async def test_tool_with_logging(self, ctx: Context, given: Json) -> Json:
        for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.session.send_log_message("info", words, related_request_id=ctx.request_id)
            await anyio.sleep(0.05)
        return text("Logged.")

    test_logging_tool = test_tool_with_logging

    async def test_tool_with_progress(self, ctx: Context, given: Json) -> Json:
        for done in (0, 50, 100):
            await ctx.session.report_progress(done, 100)
            await anyio.sleep(0.05)
        return text("Done.")

    async def test_reconnection(self, ctx: Context, given: Json) -> Json:
        if ctx.close_sse_stream is not None:
            await ctx.close_sse_stream()
        await anyio.sleep(0.1)
        return text("Reconnected.")

    async def test_trigger_tool_change(self, ctx: Context, given: Json) -> Json:
        await self.bus.publish(ToolsListChanged())
        return text("Changed.")

    async def test_trigger_prompt_change(self, ctx: Context, given: Json) -> Json:
        await self.bus.publish(PromptsListChanged())
        return text("Changed.")

    # --- what is asked of the client: on the line in 2025, by the result in 2026 ---------------------------

    async def test_sampling(self, ctx: Context, given: Json) -> Json:
        said = await asked(ctx, model(given["prompt"]), "sampling")
        return text(f"LLM response: {said['content']['text']}")

    async def test_elicitation(self, ctx: Context, given: Json) -> Json:
        said = await asked(ctx, form(given["message"], an_object(username=A_TEXT, email=A_TEXT)))
        return text(f"User response: action={said['action']}, content={json.dumps(said.get('content'))}")

    async def test_elicitation_sep1034_defaults(self, ctx: Context, given: Json) -> Json:
        return await self._elicited(ctx, DEFAULTS)

    async def test_elicitation_sep1330_enums(self, ctx: Context, given: Json) -> Json:
        return await self._elicited(ctx, ENUMS)

    async def _elicited(self, ctx: Context, schema: Json) -> Json:
        said = await asked(ctx, form("Please fill in.", schema))
        done = f"action={said['action']}, content={json.dumps(said.get('content'))}"
        return text(f"Elicitation completed: {done}")

    async def test_streaming_elicitation(self, ctx: Context, given: Json) -> Json:
        return needs(ctx, user_name=form("What is your name?", NAME)) or text("Hello!")

    async def test_missing_capability(self, ctx: Context, given: Json) -> Json:
        require(ctx, "sampling")
        return needs(ctx, capital=model("What is the capital of France?")) or text("Paris.")

    async def test_input_required_result_elicitation(self, ctx: Context, given: Json) -> Json:
        more = needs(ctx, user_name=form("What is your name?", NAME))
        return more or text(f"Hello, {answers(ctx)['user_name']['content']['name']}!")

    async def test_input_required_result_sampling(self, ctx: Context, given: Json) -> Json:
        more = needs(ctx, capital_question=model("What is the capital of France?"))
        return more or text(json.dumps(answers(ctx)["capital_question"]))

    async def test_input_required_result_list_roots(self, ctx: Context, given: Json) -> Json:
        return needs(ctx, client_roots=ROOTS) or text(json.dumps(answers(ctx)["client_roots"]))

    async def test_input_required_result_request_state(self, ctx: Context, given: Json) -> Json:
        more = needs(ctx, "waits", confirm=form("Please confirm", an_object(ok={"type": "boolean"})))
        return more or text("state-ok")

    test_input_required_result_tampered_state = test_input_required_result_request_state

    async def test_input_required_result_multiple_inputs(self, ctx: Context, given: Json) -> Json:
        questions = {
            "user_name": form("What is your name?", NAME),
            "greeting": model("Generate a greeting", 50),
            "client_roots": ROOTS,
        }
        return needs(ctx, "waits", **questions) or text("Thank you.")

    async def test_input_required_result_multi_round(self, ctx: Context, given: Json) -> Json:
        if state_of(ctx) != "second":
            name = answers(ctx).get("step1")
            if state_of(ctx) != "first" or name is None:
                return needs(ctx, "first", step1=form("Step 1: What is your name?", NAME)) or {}
        colour = form("Step 2: What is your favorite color?", an_object(color=A_TEXT))
        return needs(ctx, "second", step2=colour) or text("Thank you.")

    async def test_input_required_result_capabilities(self, ctx: Context, given: Json) -> Json:
        known = ctx.session.client_capabilities
        questions = {"capital": model("What is the capital of France?")} if known and known.sampling else {}
        if known and known.elicitation:
            questions["user_name"] = form("What is your name?", NAME)
        return needs(ctx, None, **questions) or text("Thank you.")


SCHEMAS: dict[str, Json] = {
    "json_schema_2020_12_tool": SCHEMA_2020,
    "test_custom_headers": an_object(region=A_TEXT | {"x-mcp-header": "Region"}),
    "test_elicitation": an_object(message=A_TEXT),
    "test_sampling": an_object(prompt=A_TEXT),
}
