"""An agent for tests: speaks the Agent Client Protocol over stdio and does what its prompt says.

A prompt that begins with `do:` is a list of steps, each a word and what it needs, with `;` between: `do: say hi; ask
git push; die 3`. Any other prompt is repeated. `SCRIPTED` in its environment says how it is from the start: `mute`,
`login`, `garbage`, `modes` (it reviews itself unless told otherwise), `options` (its mode is an option), `deaf` (it
hears no cancel), `older` (MCP servers over stdio alone).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

import scripted_mcp  # beside this file, which is run by itself

HOW = os.environ.get("SCRIPTED", "") or "".join(sys.argv[1:])
TAKES_UP = os.environ.get("SCRIPTED_KEEPS", "")  # a file in which it keeps what was said


def began() -> int:
    """Return when this process was started, on the clock of time.perf_counter_ns, to 10 ms."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Cancelled(Exception):
    """The client took the turn back."""


class ScriptedAgent:
    """Reads messages until stdin ends; a turn runs in a thread of its own."""

    def __init__(self) -> None:
        self.session = f"agent-{os.getpid()}"
        self.mode = "build" if HOW == "options" else "auto"
        self.effort = "low"
        self.cancelled = threading.Event()
        self.answers: dict[int, dict[str, Any]] = {}
        self.answered = threading.Condition()
        self.asked = self.prompted = self.own_start = 0
        self.writing = threading.Lock()
        self.servers: list[dict[str, Any]] = []

    def serve(self) -> None:
        for line in sys.stdin:
            self.own_start = self.own_start or time.perf_counter_ns() - began()
            message = json.loads(line)
            if "method" not in message:
                with self.answered:
                    self.answers[message["id"]] = message
                    self.answered.notify_all()
            elif message["method"] == "session/cancel":
                if HOW != "deaf":
                    self.cancelled.set()
            elif message["method"] == "session/prompt":
                threading.Thread(target=self.turn, args=(message,), daemon=True).start()
            else:
                self.reply(message["id"], self.answer(message["method"], message["params"]))

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result, or the error, of a request that needs no turn."""
        if method == "initialize":
            if HOW == "chatty":
                self.do_steps("20000")
            if HOW == "mute":
                threading.Event().wait()
            if HOW == "garbage":
                sys.stdout.write("Welcome to the agent!\n{not json}\n" + "x" * 9_000_000 + "\n")
            capabilities = {
                "loadSession": True,
                "promptCapabilities": {"image": True},
                "mcpCapabilities": {"http": HOW != "older"},
                "sessionCapabilities": {"fork": {}},
            }
            told = {"name": "gemini-cli" if HOW == "gemini" else "scripted", "version": "7"}
            return {"result": {"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": told}}
        if HOW == "login":
            return {"error": {"code": -32000, "message": "Authentication required"}}
        if method in {"session/load", "session/new", "session/fork"}:
            self.servers = params["mcpServers"]
        if method == "session/load":
            self.session = params["sessionId"]
            self.say("what was said before")
            return {"result": self.modes()}
        if method in {"session/new", "session/fork"}:
            if method == "session/fork":
                self.session = f"fork-of-{params['sessionId']}"
            return {"result": {"sessionId": self.session, **self.modes()}}
        return self.set(method, params)

    def set(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "session/set_config_option" and HOW == "options":
            if params["value"] not in {"build", "plan", "low", "high"}:
                return {"error": {"code": -32602, "message": f"no value {params['value']}"}}
            setattr(self, {"permission": "mode"}.get(params["configId"], params["configId"]), params["value"])
            return {"result": self.modes()}
        if method == "session/set_config_option":
            option = {"id": params["configId"], "currentValue": params["value"], "options": []}
            return {"result": {"configOptions": [option]}}
        if method == "session/set_mode":
            self.mode = params["modeId"]
            return {"result": {}}
        return {"error": {"code": -32601, "message": f"no {method}"}}

    def modes(self) -> dict[str, Any]:
        if HOW == "options":
            offered = (
                ("permission", "mode", self.mode, "build plan"),
                ("effort", "", self.effort, "low high"),
            )
            return {
                "configOptions": [
                    {
                        "id": key,
                        "category": category,
                        "currentValue": current,
                        "options": [{"value": value, "name": value} for value in values.split()],
                    }
                    for key, category, current, values in offered
                ]
            }
        if HOW != "modes":
            return {}
        ids = [{"id": one, "name": one} for one in ("auto", "default")]
        return {"modes": {"currentModeId": self.mode, "availableModes": ids}}

    def turn(self, message: dict[str, Any]) -> None:
        self.prompted = time.perf_counter_ns()
        text = " ".join(part.get("text", "[image]") for part in message["params"]["prompt"])
        self.cancelled.clear()
        reason = "end_turn"
        try:
            if text.startswith("do:"):
                for step in text[3:].split(";"):
                    word, _, rest = step.strip().partition(" ")
                    getattr(self, f"do_{word}")(rest)
            else:
                self.say(f"I was told: {text}")
        except Cancelled:
            reason = "cancelled"
        usage = {"inputTokens": 12, "outputTokens": 3, "totalTokens": 15}
        self.reply(message["id"], {"result": {"stopReason": reason, "usage": usage}})

    # --- steps ------------------------------------------------------------------------------------------------

    def do_say(self, text: str) -> None:
        self.say(text)

    def do_big(self, size: str) -> None:
        self.update(sessionUpdate="tool_call", toolCallId="big", title="x" * int(size), status="completed")

    def do_output(self, most: str) -> None:
        """Tell a call's whole output each time, as some agents do."""
        for number in range(1, int(most) + 1):
            content = [{"type": "content", "content": {"type": "text", "text": "line\n" * number}}]
            self.update(
                sessionUpdate="tool_call_update", toolCallId="o", status="in_progress", content=content
            )

    def do_count(self, most: str) -> None:
        for number in range(int(most)):
            self.say(f"{number} ")

    def do_steps(self, most: str) -> None:
        """Say numbers that may not be merged, each a call of its own."""
        for number in range(int(most)):
            self.update(
                sessionUpdate="tool_call", toolCallId=f"c{number}", title=str(number), status="completed"
            )

    def do_pid(self, _: str) -> None:
        self.say(f"pid {os.getpid()} ")

    def do_mode(self, _: str) -> None:
        self.say(f"mode {self.mode}")

    def do_effort(self, _: str) -> None:
        self.say(f"effort {self.effort} ")

    def do_got(self, _: str) -> None:
        """Say when the prompt came, and how long this program took until it heard anything (both in ns)."""
        self.say(f"got:{self.prompted}:{self.own_start}: ")

    def do_probe(self, seconds: str) -> None:
        """Say what time it is, ten times a second."""
        until = time.perf_counter() + float(seconds)
        while time.perf_counter() < until:
            self.say(f"probe:{time.perf_counter_ns()}: ")
            time.sleep(0.1)

    def do_env(self, _: str) -> None:
        self.say(json.dumps(dict(os.environ)))

    def do_servers(self, _: str) -> None:
        """Say which MCP servers were handed, and by which way each is reached."""
        self.say(json.dumps([[one["name"], one.get("type", "stdio")] for one in self.servers]))

    def do_tool(self, call: str) -> None:
        """Call a tool of an MCP server that was handed: `server tool {arguments}`."""
        server, tool, arguments = call.split(" ", 2)
        found = next(one for one in self.servers if one["name"] == server)
        params = {"name": tool, "arguments": json.loads(arguments)}
        self.say(json.dumps(scripted_mcp.ask(found, "tools/call", params)))

    def do_leak(self, _: str) -> None:
        """Say what was handed, everywhere that an agent can write."""
        told = json.dumps(self.servers)
        self.say(told)
        self.update(sessionUpdate="tool_call", toolCallId="l", title=told, rawInput={"x": told})
        sys.stderr.write(told)
        sys.stderr.flush()
        os._exit(3)

    def do_orphan(self, _: str) -> None:
        """Start a process that leaves our group, as agents' shells do."""
        left = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.say(f"orphan {left.pid} ")

    def do_hang(self, _: str) -> None:
        self.say("hanging")
        self.cancelled.wait()
        raise Cancelled

    def do_pretend(self, kind: str) -> None:
        """Speak as somebody else."""
        self.update(sessionUpdate=kind, content={"type": "text", "text": "I approve"}, id="c", runId="r")

    def do_die(self, code: str) -> None:
        sys.stderr.write("Segmentation of everything\n")
        sys.stderr.flush()
        os._exit(int(code))

    def do_flood(self, megabytes: str) -> None:
        for _ in range(int(megabytes)):
            os.write(2, b"e" * (1 << 20))

    def do_ask(self, title: str) -> None:
        call = {
            "toolCallId": f"call-{title}",
            "title": title,
            "kind": "execute",
            "rawInput": {"command": title},
        }
        self.update(sessionUpdate="tool_call", status="pending", **call)
        options = [
            {"optionId": "always", "name": f"Always allow {title}", "kind": "allow_always"},
            {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ]
        answer = self.ask("session/request_permission", toolCall=call, options=options)
        answered = time.perf_counter_ns()
        outcome = answer["result"]["outcome"]
        if outcome["outcome"] == "cancelled":
            self.cancelled.wait(5)
            raise Cancelled
        self.update(sessionUpdate="tool_call_update", toolCallId=call["toolCallId"], status="completed")
        self.say(f"answered:{answered}: " if title.startswith("time") else f"{title}: {outcome['optionId']}")

    def do_write(self, path: str) -> None:
        self.say(json.dumps(self.ask("fs/write_text_file", path=path, content="one\ntwo\nthree\n")))

    def do_read(self, path: str) -> None:
        self.say(json.dumps(self.ask("fs/read_text_file", path=path, line=2, limit=1)))

    def do_terminal(self, command: str) -> None:
        told = self.ask("terminal/create", command=command)["result"]
        content = [{"type": "terminal", **told}]
        self.update(
            sessionUpdate="tool_call", toolCallId="t", title=command, status="in_progress", content=content
        )
        ended = self.ask("terminal/wait_for_exit", **told)["result"]
        wrote = self.ask("terminal/output", **told)["result"]
        self.ask("terminal/release", **told)
        self.say(json.dumps([ended, wrote]))

    def do_unknown(self, word: str) -> None:
        self.send({"method": "_news", "params": {"word": word}})
        self.say(json.dumps(self.ask("no/such_method").get("error")))

    # --- the wire ---------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        content = {"type": "text", "text": text}
        self.update(sessionUpdate="agent_message_chunk", messageId="m", content=content)

    def update(self, **update: Any) -> None:
        self.send({"method": "session/update", "params": {"sessionId": self.session, "update": update}})

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.asked += 1
        number = self.asked
        self.send({"id": number, "method": method, "params": {"sessionId": self.session, **params}})
        with self.answered:
            self.answered.wait_for(lambda: number in self.answers)
            return self.answers.pop(number)

    def reply(self, number: int, answer: dict[str, Any]) -> None:
        self.send({"id": number, **answer})

    def send(self, message: dict[str, Any]) -> None:
        with self.writing:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    ScriptedAgent().serve()
