"""Tasks that a server makes of calls: their ids in its responses, and a list of tasks with the caller's own alone."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class TaskReference(msgspec.Struct):
    taskId: str


class TaskResult(msgspec.Struct):
    """A result that begins a task: 2025-11-25 has it one level deeper."""

    task: TaskReference | None = None
    taskId: str | None = None


class TaskResponse(msgspec.Struct):
    result: TaskResult | None = None


_begun = msgspec.json.Decoder(TaskResponse).decode


def find_started_task_id(response: bytes) -> str | None:
    """Return the id of the task that a response to a call begins; None where it begins none."""
    if b"taskId" not in response:
        return None
    try:
        result = _begun(response).result
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if result is None:
        return None
    return result.task.taskId if result.task else result.taskId


def list_task_ids(response: bytes) -> list[str]:
    """Return the ids of the tasks that a response to tasks/list names."""
    return [task_id for task_id, _ in parse_task_list_or_empty(response) if task_id is not None]


def filter_task_list_response(response: bytes, own: Collection[str]) -> bytes:
    """Return a response to tasks/list without the tasks that are not among `own`; the others as the bytes that came."""
    fields = _fields(response)
    if "result" not in fields:
        return response
    own_tasks = [raw for task_id, raw in parse_task_list_or_empty(response) if task_id in own]
    result = _fields(fields["result"]) | {"tasks": msgspec.Raw(_encode(own_tasks))}
    return _encode(fields | {"result": msgspec.Raw(_encode(result))})


def parse_task_list_or_empty(response: bytes) -> list[tuple[str | None, msgspec.Raw]]:
    try:
        tasks = _items(_fields(_fields(response)["result"])["tasks"])
    except (msgspec.MsgspecError, KeyError):
        return []
    return [(parse_task_id_or_none(raw), raw) for raw in tasks]


def parse_task_id_or_none(task: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(task, type=TaskReference).taskId
    except msgspec.MsgspecError:
        return None
