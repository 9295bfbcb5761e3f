"""Tasks that a server makes of calls: their ids in its responses, and a list of tasks with the caller's own alone."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Task(msgspec.Struct):
    taskId: str


class _Begun(msgspec.Struct):
    """A result that begins a task: 2025-11-25 has it one level deeper."""

    task: _Task | None = None
    taskId: str | None = None


class _Response(msgspec.Struct):
    result: _Begun | None = None


_begun = msgspec.json.Decoder(_Response).decode


def task_id_in(response: bytes) -> str | None:
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


def ids_in_list(response: bytes) -> list[str]:
    """Return the ids of the tasks that a response to tasks/list names."""
    return [task_id for task_id, _ in _list_tasks(response) if task_id is not None]


def with_own_alone(response: bytes, own: Collection[str]) -> bytes:
    """Return a response to tasks/list without the tasks that are not among `own`; the others as the bytes that came."""
    fields = _fields(response)
    if "result" not in fields:
        return response
    kept = [raw for task_id, raw in _list_tasks(response) if task_id in own]
    result = _fields(fields["result"]) | {"tasks": msgspec.Raw(_encode(kept))}
    return _encode(fields | {"result": msgspec.Raw(_encode(result))})


def _list_tasks(response: bytes) -> list[tuple[str | None, msgspec.Raw]]:
    try:
        tasks = _items(_fields(_fields(response)["result"])["tasks"])
    except (msgspec.MsgspecError, KeyError):
        return []
    return [(_id_of(raw), raw) for raw in tasks]


def _id_of(task: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(task, type=_Task).taskId
    except msgspec.MsgspecError:
        return None
