"""A scripted model on loopback that speaks the four APIs which real agents ask: no account, no internet.

`scripted(commands…)` answers as a model would that wants a shell to run these commands, one call of a tool after the
other, and then says "Done.". In place of a command may stand the `Use` of another tool. The agent's request tells how
far it is: by the number of results that it carries. A call about which it is told to call again is made again; for a
tool that is not offered yet, since its server is still being connected, it waits a second, a few times.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
DONE = "Done."
SPACE = "\x1f"  # between a tool's namespace and its name
USED = 7  # tokens of either kind, in each answer
MOST_WAITS = 30
LONGEST_REST = 240.0  # seconds
CALL_AGAIN = "Call the same tool again with exactly the same arguments"  # as the gateway's answers say


@dataclass(frozen=True)
class Use:
    """The call of a tool that its agent offers under a name with this end, the shortest of several."""

    tool: str
    given: Json


Command = str | Use


def _not_together(words: list[Json], call: list[Json]) -> list[Json]:
    raise NotImplementedError(f"no test needs words and a call in one answer of this API: {words}, {call}")


@dataclass(frozen=True)
class Api:
    """One API: `results` counts the results in a request; `tools` are the tools' names that it offers.

    `call` and `words` make an answer's server-sent events: of a call (its number, the tool, its input), and of text.
    `shell` is the tool that runs a command, `command` makes its input. `both` joins words and a call to one answer.
    """

    shell: str
    command: Callable[[str], Json]
    results: Callable[[Json], int]
    tools: Callable[[Json], list[str]]
    call: Callable[[int, str, Json], list[Json]]
    words: Callable[[int, str], list[Json]]
    both: Callable[[list[Json], list[Json]], list[Json]] = _not_together
    ends: bytes = b""

    def wanted(self, at: int, what: Command, asked: Json) -> list[Json] | None:
        """Return the answer of a model that wants this; None where its tool is not offered."""
        if isinstance(what, str):
            return self.call(at, self.shell, self.command(what))
        named = [one for one in self.tools(asked) if one.endswith(what.tool)]
        return self.call(at, min(named, key=len), what.given) if named else None


# --- Anthropic's messages (Claude Code) --------------------------------------------------------------------


def _messages(at: int, block: Json, delta: Json, reason: str) -> list[Json]:
    usage = {"input_tokens": USED, "output_tokens": USED}
    message = {"id": f"msg_{at}", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    return [
        {"type": "message_start", "message": message | {"stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]


def _plain(command: str) -> Json:
    return {"command": command}


def _messages_call(at: int, tool: str, given: Json) -> list[Json]:
    block = {"type": "tool_use", "id": f"toolu_{at}", "name": tool, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
    return _messages(at, block, delta, "tool_use")


def _messages_words(at: int, words: str) -> list[Json]:
    return _messages(at, {"type": "text", "text": ""}, {"type": "text_delta", "text": words}, "end_turn")


def _messages_results(asked: Json) -> int:
    contents = [one["content"] for one in asked["messages"] if isinstance(one["content"], list)]
    return sum(part.get("type") == "tool_result" for content in contents for part in content)


# --- OpenAI's responses (Codex) ----------------------------------------------------------------------------


def _responses(at: int, item: Json) -> list[Json]:
    usage = {
        "input_tokens": USED,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": USED,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2 * USED,
    }
    return [
        {"type": "response.created", "response": {"id": f"resp_{at}"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": f"resp_{at}", "usage": usage}},
    ]


def _responses_call(at: int, tool: str, given: Json) -> list[Json]:
    space, _, name = tool.rpartition(SPACE)
    item = {"type": "function_call", "name": name, "arguments": json.dumps(given), "call_id": f"call_{at}"}
    return _responses(at, item | ({"namespace": space} if space else {}))


def _cmd(command: str) -> Json:
    return {"cmd": command}


def _escalated(command: str) -> Json:
    """Return the input as the model makes it for a command that is to run outside of Codex's own sandbox."""
    return {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "As asked"}


def _responses_words(at: int, words: str) -> list[Json]:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    return _responses(at, {"type": "message", "role": "assistant", "id": f"msg_{at}", "content": content})


def _responses_both(words: list[Json], call: list[Json]) -> list[Json]:
    return [*words[:-1], *call[1:]]


def _responses_results(asked: Json) -> int:
    return sum(item.get("type") == "function_call_output" for item in asked["input"])


# --- Gemini's streamGenerateContent (Gemini CLI) -----------------------------------------------------------


def _generated(part: Json) -> list[Json]:
    usage = {"promptTokenCount": USED, "candidatesTokenCount": USED, "totalTokenCount": 2 * USED}
    content = {"role": "model", "parts": [part]}
    candidates = [{"content": content, "finishReason": "STOP", "index": 0}]
    return [{"candidates": candidates, "usageMetadata": usage, "modelVersion": "scripted"}]


def _generated_call(_at: int, tool: str, given: Json) -> list[Json]:
    return _generated({"functionCall": {"name": tool, "args": given}})


def _generated_words(_at: int, words: str) -> list[Json]:
    return _generated({"text": words})


def _generated_both(words: list[Json], call: list[Json]) -> list[Json]:
    parts = [event["candidates"][0]["content"]["parts"][0] for event in (*words, *call)]
    call[0]["candidates"][0]["content"]["parts"] = parts
    return call


def _generated_results(asked: Json) -> int:
    return sum("functionResponse" in part for content in asked["contents"] for part in content["parts"])


def _generated_tools(asked: Json) -> list[str]:
    return [one["name"] for tools in asked.get("tools", ()) for one in tools.get("functionDeclarations", ())]


# --- OpenAI's chat completions (OpenCode) ------------------------------------------------------------------


def _chunks(at: int, delta: Json, reason: str) -> list[Json]:
    about = {"id": f"chatcmpl-{at}", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    usage = {"prompt_tokens": USED, "completion_tokens": USED, "total_tokens": 2 * USED}
    return [
        about | {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
        about | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        about | {"choices": [], "usage": usage},
    ]


def _described(command: str) -> Json:
    return {"command": command, "description": "As asked"}


def _chunks_call(at: int, tool: str, given: Json) -> list[Json]:
    function = {"name": tool, "arguments": json.dumps(given)}
    call = {"index": 0, "id": f"call_{at}", "type": "function", "function": function}
    return _chunks(at, {"tool_calls": [call]}, "tool_calls")


def _chunks_words(at: int, words: str) -> list[Json]:
    return _chunks(at, {"content": words}, "stop")


def _chunks_results(asked: Json) -> int:
    return sum(message["role"] == "tool" for message in asked["messages"])


def _named(asked: Json) -> list[str]:
    return [str(tool.get("name")) for tool in asked.get("tools") or ()]


def _in_spaces(asked: Json) -> list[str]:
    """Return the names of tools; of those in a namespace (Codex's, of MCP servers) with the namespace before them."""
    found = []
    for tool in asked.get("tools") or ():
        inner = tool.get("tools") if tool.get("type") == "namespace" else None
        found += [f"{tool['name']}{SPACE}{one['name']}" for one in inner or ()] or [str(tool.get("name"))]
    return found


def _functions(asked: Json) -> list[str]:
    return [str(tool["function"]["name"]) for tool in asked.get("tools") or ()]


MESSAGES = Api("Bash", _plain, _messages_results, _named, _messages_call, _messages_words)
RESPONSES = Api(
    "exec_command", _cmd, _responses_results, _in_spaces, _responses_call, _responses_words, _responses_both
)
GENERATE = Api(
    "run_shell_command",
    _plain,
    _generated_results,
    _generated_tools,
    _generated_call,
    _generated_words,
    _generated_both,
)
CHAT = Api(
    "bash",
    _described,
    _chunks_results,
    _functions,
    _chunks_call,
    _chunks_words,
    ends=b"data: [DONE]\n\n",
)
# Of Qwen Code, which offers no tool "bash".
CHAT_OF_QWEN = replace(
    CHAT, shell="run_shell_command", command=lambda command: {"command": command, "is_background": False}
)
ESCALATED = replace(RESPONSES, command=_escalated)
BY_PATH = {
    "/v1/messages": MESSAGES,
    "/responses": RESPONSES,
    ":streamGenerateContent": GENERATE,
    "/chat/completions": CHAT,
}


@dataclass
class Script:
    """What a model wants, and what it was asked: `requests` are the bodies of those that carried the shell.

    `escalates`: Codex's model wants its commands to run outside of the sandbox, about which Codex asks.
    `says`: what it says before each call, with the call's number in place of `#`; "" for nothing.
    `before`: how many results there were when the commands began; None: as many as the next request carries.
    `up_to`: the model rests before it wants more commands than this (`goes_on`).
    """

    commands: Sequence[Command]
    address: str = ""
    escalates: bool = False
    says: str = ""
    before: int | None = 0
    waits: int = 0
    up_to: float = math.inf
    changed: threading.Condition = field(default_factory=threading.Condition)
    requests: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def starts_again(self, *commands: Command) -> None:
        """Want these commands from the next request on, whatever came of those before."""
        self.commands, self.before, self.waits = commands, None, 0

    def goes_on(self, up_to: float = math.inf) -> None:
        """Want this many commands in all before it rests, from now on."""
        with self.changed:
            self.up_to = up_to
            self.changed.notify_all()

    def answer(self, api: Api, body: bytes) -> list[Json]:
        """Return the events that answer a request."""
        asked = json.loads(body)
        at = api.results(asked)
        if api is CHAT and CHAT_OF_QWEN.shell in api.tools(asked):
            api = CHAT_OF_QWEN
        if api.shell not in api.tools(asked):
            return api.words(at, DONE)  # a title, say
        self.requests.append(body.decode())
        api = ESCALATED if self.escalates and api is RESPONSES else api
        self.before = at if self.before is None else self.before
        step = at - self.before - self.waits - body.decode().count(CALL_AGAIN)
        if not 0 <= step < len(self.commands):
            return api.words(at, DONE)
        with self.changed:
            self.changed.wait_for(lambda: step < self.up_to, LONGEST_REST)
        wanted = api.wanted(at, self.commands[step], asked)
        if wanted is None and self.waits < MOST_WAITS:
            self.waits += 1
            return api.call(at, api.shell, api.command("sleep 1"))
        if wanted and self.says:
            return api.both(api.words(at, self.says.replace("#", str(step))), wanted)
        return wanted or api.words(at, "There is no such tool.")


class _Handler(BaseHTTPRequestHandler):
    script: Script

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.partition("?")[0]
        api = next((api for end, api in BY_PATH.items() if path.endswith(end)), None)
        if api is None:
            self.script.others.append(self.path)
            self.send_error(404)
            return
        events = self.script.answer(api, body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(api.ends)

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@contextmanager
def scripted(*commands: Command) -> Iterator[Script]:
    """Serve a model that wants to run these commands; yields its script, with its address."""
    script = Script(commands)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Scripted", (_Handler,), {"script": script}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    script.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
