"""Responses that the gateway itself gives, in JSON-RPC, with texts that a model can act on."""

from __future__ import annotations

from typing import Any

import msgspec

from coordinator.mcp.protocol.messages import DENIED, McpMessage

_encode = msgspec.json.Encoder().encode


def encode_result_response(number: Any, value: dict[str, Any]) -> bytes:
    """Return a response with a result."""
    return _encode({"jsonrpc": "2.0", "id": number, "result": value})


def encode_error_response(number: Any, code: int, text: str, data: Any = None) -> bytes:
    """Return a response with an error; `number` is None where no id could be read."""
    error_fields: dict[str, Any] = {"code": code, "message": text}
    if data is not None:
        error_fields["data"] = data
    return _encode({"jsonrpc": "2.0", "id": number, "error": error_fields})


def encode_tool_error_response(message: McpMessage, text: str, about: dict[str, Any] | None = None) -> bytes:
    """Return a call's result that says in `words` why it did not run; `about` goes along for programs."""
    value: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    if about:
        value["_meta"] = {"signalbox/decision": about}
    if message.is_stateless:
        value["resultType"] = "complete"
    return encode_result_response(message.id, value)


def encode_refusal_response(message: McpMessage, text: str, about: dict[str, Any] | None = None) -> bytes:
    """Return why a call, or another request, did not run, in the form that its client understands."""
    if message.method == "tools/call":
        return encode_tool_error_response(message, text, about)
    return encode_error_response(message.id, DENIED, text)


def encode_json_rpc_request(number: Any, method: str, params: dict[str, Any]) -> bytes:
    """Return a request of our own."""
    return _encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def encode_notification(method: str, params: dict[str, Any]) -> bytes:
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})


def describe_policy_denial(server_id: str, tool: str, reason: str, link: str) -> str:
    """Return the words for a call that policy denies."""
    return (
        f"Denied: {tool} of {server_id} did not run. {reason.rstrip('.')}. Do not work around it. "
        f"A person can allow it at {link}; tell them what you need it for."
    )


def describe_person_denial(tool: str, reason: str | None) -> str:
    """Return the words for a call that a person denied."""
    reason_text = f" They said: {reason}" if reason else ""
    return (
        f"A person denied this call of {tool}, so it did not run.{reason_text} Do not try it again unchanged."
    )


def describe_waiting_call(tool: str, approval_url: str) -> str:
    """Return the words for a call that may run once a person approved it."""
    return (
        f"Waiting for approval: {tool} has not run yet. A person decides at {approval_url}. "
        "Call the same tool again with exactly the same arguments: once it is approved, it runs at once. "
        "Meanwhile you may do something else."
    )


def describe_waiting_non_tool_request(method: str, approval_url: str) -> str:
    """Return the words for another request that may be sent once a person approved it."""
    return (
        f"Waiting for approval: {method} was not sent yet. A person decides at {approval_url}. "
        "Send exactly the same request again: once it is approved, it is sent at once."
    )


def describe_call_with_unknown_end(tool: str, started_at: str) -> str:
    """Return the message about a call that was approved and started, and whose end is not known."""
    return (
        f"{tool} was approved and started at {started_at}, and Signalbox does not know how it ended: it may have run. "
        "It is not repeated by itself. Check whether it took effect; if you call it again, a person is asked again."
    )


def describe_running_call(tool: str) -> str:
    """Return the words for a call that was approved and is running for an earlier line of the same client."""
    return (
        f"{tool} was approved and is running now, for your earlier call of it. Call it again with exactly the same "
        "arguments to get its result."
    )


def describe_call_closed_undecided(tool: str, state: str) -> str:
    """Return the words for a call about which nobody decided before its card was closed."""
    return f"Nobody approved this call of {tool} ({state.lower()}), so it did not run. Call it again to ask again."


def describe_call_not_sent(server_id: str, tool: str, reason: str, *, approved: bool = False) -> str:
    """Return the words for a call that did not reach its server."""
    approval_sentence = (
        " The approval stands: call it again later with the same arguments." if approved else ""
    )
    return f"{tool} did not run: the server {server_id} {reason}.{approval_sentence}"


def describe_call_not_continued(server_id: str, tool: str, reason: str, *, can_answer_again: bool) -> str:
    """Return the words for a call whose server asked a question, to which the answer could not be sent.

    `can_answer_again`: the question can be answered once more.
    """
    again = (
        "Its question is still open: send the call with the same requestState and your answers again later."
        if can_answer_again
        else "Check what it has done so far before you call it again; then a person is asked again."
    )
    return f"{tool} did not go on: the server {server_id} {reason}. {again}"


def describe_stopped_call(tool: str, reason: str) -> str:
    """Return the words for a call whose server asked a question, and which may not go on."""
    return f"{tool} does not go on. {reason.rstrip('.')}. Call it again to ask again."


def describe_call_without_response(server_id: str, tool: str, reason: str) -> str:
    """Return the words for a call that was sent and got no answer."""
    return (
        f"{tool} was sent to the server {server_id}, which {reason}: it may have run. "
        "Check whether it took effect before you call it again."
    )
