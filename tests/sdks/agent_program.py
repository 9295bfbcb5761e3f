"""A program with an agent, as a user of an SDK writes it: run in the SDKs' environment, never imported.

Arguments: the SDK, `waits` (the adapter waits in the run) or `resumes` (the run's state is kept in a file), the file
with the page's block of code, the file that the tool writes, the file of the state. Prints the agent's last words.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

_, SDK, WAY, CODE, RAN, STATE = sys.argv


def remove(path: str) -> str:
    with Path(RAN).open("a") as file:
        file.write(f"{path}\n")
    return f"removed {path}"


async def run_pydantic() -> str:
    from pydantic_ai import DeferredToolRequests
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: list[Any], _info: Any) -> ModelResponse:
        results = [part for message in messages for part in message.parts if part.part_kind == "tool-return"]
        if results:
            return ModelResponse(parts=[TextPart(f"Read: {results[-1].content}")])
        return ModelResponse(parts=[ToolCallPart("delete_file", {"path": "report.txt"}, "call-1")])

    def delete_file(path: str) -> str:
        return remove(path)

    names: dict[str, Any] = {"remove": remove, "store": Path(STATE).write_bytes}
    exec(Path(CODE).read_text(), names)
    model = FunctionModel(answer)
    if WAY == "waits":
        return str((await names["agent"].run("Clean up", model=model)).output)

    from pydantic_ai import Agent

    agent: Any = Agent(model, output_type=[str, DeferredToolRequests])
    agent.tool_plain(requires_approval=True)(delete_file)
    start: dict[str, Any] = {"user_prompt": "Clean up"}
    if Path(STATE).exists():
        start = {"message_history": ModelMessagesTypeAdapter.validate_json(Path(STATE).read_bytes())}
    return str((await names["run_until_done"](agent, **start)).output)


async def run_openai() -> str:
    from agents import (
        Agent,
        Model,
        ModelResponse,
        RunConfig,
        Runner,
        RunState,
        Usage,
        function_tool,
        set_tracing_disabled,
    )
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class ScriptedModel(Model):
        async def get_response(self, *_given: Any, **named: Any) -> ModelResponse:
            given = named["input"]
            items = given if isinstance(given, list) else []
            results = [item for item in items if item.get("type") == "function_call_output"]
            output: Any = ResponseFunctionToolCall(
                arguments=json.dumps({"path": "report.txt"}),
                call_id="call-1",
                name="delete_file",
                type="function_call",
            )
            if results:
                text = ResponseOutputText(
                    annotations=[], text=f"Read: {results[-1]['output']}", type="output_text"
                )
                output = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            usage = Usage(requests=1, input_tokens=70, output_tokens=30, total_tokens=100)
            return ModelResponse(output=[output], usage=usage, response_id=f"resp-{len(items)}")

        def stream_response(self, *_given: Any, **_more: Any) -> Any:
            raise NotImplementedError

    set_tracing_disabled(True)
    names: dict[str, Any] = {
        "remove": remove,
        "store": lambda state: Path(STATE).write_text(json.dumps(state)),
    }
    exec(Path(CODE).read_text(), names)
    config = RunConfig(model=ScriptedModel(), tracing_disabled=True)
    if WAY == "waits":
        hooks = names["hooks"]
        return str(
            (await Runner.run(names["agent"], "Clean up", run_config=config, hooks=hooks)).final_output
        )

    @function_tool(needs_approval=True)
    def delete_file(path: str) -> str:
        return remove(path)

    agent: Any = Agent("Cleaner", model=ScriptedModel(), tools=[delete_file])
    start: Any = "Clean up"
    if Path(STATE).exists():
        start = await RunState.from_json(agent, json.loads(Path(STATE).read_text()))
    return str((await names["run_until_done"](agent, start)).final_output)


async def run_langgraph() -> str:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import tools_condition

    class ScriptedModel(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def _generate(self, messages: Any, *_given: Any, **_more: Any) -> ChatResult:
            last = messages[-1]
            call = {"name": "delete_file", "args": {"path": "report.txt"}, "id": "call-1"}
            text, calls = (f"Read: {last.content}", []) if last.type == "tool" else ("", [call])
            message = AIMessage(
                text,
                tool_calls=calls,
                usage_metadata={"input_tokens": 70, "output_tokens": 30, "total_tokens": 100},
                response_metadata={"model_name": "scripted"},
            )
            return ChatResult(generations=[ChatGeneration(message=message)])

    def answer(state: Any) -> dict[str, Any]:
        return {"messages": [ScriptedModel().invoke(state["messages"])]}

    def delete_file(path: str) -> str:
        """Delete a file."""
        return remove(path)

    names: dict[str, Any] = {"remove": remove, "delete_file": delete_file}
    exec(Path(CODE).read_text(), names)
    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", answer)
    graph.add_node("tools", names["tools"])
    graph.add_edge(START, "model")
    graph.add_edge("tools", "model")
    graph.add_conditional_edges("model", tools_condition)
    values = None if Path(STATE).exists() else {"messages": [HumanMessage("Clean up")]}
    config = {"configurable": {"thread_id": "order-17"}, **names.get("config", {})}
    with SqliteSaver.from_conn_string(STATE) as checkpointer:
        graph = graph.compile(checkpointer=checkpointer)
        run = names.get("run_until_done") or (lambda graph, *given: graph.invoke(*given))
        return str(run(graph, values, config)["messages"][-1].content)


async def run_adk() -> str:
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.adk.sessions.sqlite_session_service import SqliteSessionService
    from google.genai import types

    class ScriptedModel(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            last = llm_request.contents[-1].parts[-1]
            call = types.FunctionCall(name="delete_file", args={"path": "report.txt"})
            part = types.Part(function_call=call)
            if last.function_response:
                part = types.Part(text=f"Read: {last.function_response.response}")
            usage = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=70, candidates_token_count=30
            )
            content = types.Content(role="model", parts=[part])
            yield LlmResponse(content=content, usage_metadata=usage)

    def delete_file(path: str) -> str:
        """Delete a file."""
        return remove(path)

    names: dict[str, Any] = {
        "remove": remove,
        "delete_file": delete_file,
        "model": ScriptedModel(model="scripted"),
    }
    exec(Path(CODE).read_text(), names)
    about = {"app_name": "app", "user_id": "ann", "session_id": "order-17"}
    resumes = Path(STATE).exists()
    service = SqliteSessionService(STATE)
    session = await (service.get_session(**about) if resumes else service.create_session(**about))
    assert session is not None
    runner = Runner(
        app_name="app", agent=names["agent"], session_service=service, plugins=names.get("plugins")
    )
    message = types.Content(role="user", parts=[types.Part(text="Clean up")])
    if WAY == "waits":
        run = runner.run_async(user_id="ann", session_id="order-17", new_message=message)
        events = [event async for event in run]
    else:
        events = await names["run_until_done"](runner, session.events, None if resumes else message)
    return str(events[-1].content.parts[-1].text)


async def run_claude() -> str:
    from claude_agent_sdk import create_sdk_mcp_server, query, tool

    @tool("delete_file", "Delete a file", {"path": str})
    async def delete_file(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": remove(arguments["path"])}]}

    names: dict[str, Any] = {
        "server": create_sdk_mcp_server("files", tools=[delete_file]),
        "session_id": Path(STATE).read_text() if Path(STATE).exists() else None,
        "store": Path(STATE).write_text,
    }
    exec(Path(CODE).read_text(), names)
    if WAY == "resumes":
        messages = await names["run_until_done"]("Clean up")
    elif "run_agent" in names:
        messages = await names["run_agent"]("Clean up")
    else:
        messages = [message async for message in query(prompt="Clean up", options=names["options"])]
    return "\n".join(map(str, messages))


RUNS = {
    "adk": run_adk,
    "claude": run_claude,
    "pydantic": run_pydantic,
    "openai": run_openai,
    "langgraph": run_langgraph,
}
print(asyncio.run(RUNS[SDK]()))  # noqa: T201
