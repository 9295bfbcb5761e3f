"""Export of decisions to OpenTelemetry: each committed decision is sent once, in order, to the configured address.

One log record of OTLP over HTTP with the event name `gen_ai.tool.call.decision`, in addition to the agent's own GenAI
spans: tool, verdict, decider, session, and the entry's number in the audit log. The position is stored in the database
(AuditDelivery). So a restart loses none, and sends one twice only if its answer was lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.conf import settings

from coordinator.actions.upkeep.jobs import JobAttemptFailed
from coordinator.lib import http_post, instants
from coordinator.lib.network_words import describe_network_error
from coordinator.models import AuditDelivery, AuditLeaf, AuditLog
from coordinator.transparency import tree

if TYPE_CHECKING:  # protobuf takes some MB, and few installations send decisions anywhere
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

EVENT_NAME = "gen_ai.tool.call.decision"
VERDICTS = {
    "PERMISSION_REQUEST_APPROVED": "approved",
    "PERMISSION_REQUEST_AUTO_APPROVED": "approved",
    "PERMISSION_REQUEST_DENIED": "denied",
    "PERMISSION_REQUEST_EXPIRED": "expired",
    "PERMISSION_APPROVAL_USED": "approved",
    "TOOL_CALL_ALLOWED": "approved",
    "TOOL_CALL_DENIED": "denied",
}
STEP = 200  # audit entries looked at in one go
TIMEOUT = 10.0  # seconds


def export_new_decision_logs(now: datetime) -> None:
    """Send the decisions that were made since the last time. Nothing where no address is set.

    Raises JobAttemptFailed where the receiver does not take them.
    """
    if not settings.OTLP_ENDPOINT:
        return
    destination = f"otlp:{urlsplit(settings.OTLP_ENDPOINT).hostname}"
    delivery, is_new = AuditDelivery.objects.get_or_create(
        place=destination, defaults={"tree_size": tree.count_log_entries()}
    )
    while not is_new and export_decision_log_batch(delivery, now):
        pass


def export_decision_log_batch(delivery: AuditDelivery, now: datetime) -> bool:
    """Send what is among the next STEP entries; say whether there may be more. Raises JobAttemptFailed."""
    leaves = AuditLeaf.objects.filter(leaf_index__gte=delivery.tree_size).order_by("leaf_index")[:STEP]
    leaf_rows = list(leaves.values_list("audit_id", "leaf_index", "by_signalbox"))
    if not leaf_rows:
        return False
    numbers = {
        pk: number for pk, number, ours in leaf_rows if ours
    }  # not what was imported or written by others
    decided = AuditLog.objects.filter(pk__in=numbers, event_type__in=VERDICTS).order_by("pk")
    records = [build_otlp_decision_record(row, numbers[row.pk] or 0, now) for row in decided]
    try:
        if records:
            export_decision_logs(records)
    except OSError as problem:
        raise JobAttemptFailed(f"The receiver {describe_network_error(problem)}.") from None
    after = max(number or 0 for _pk, number, _ours in leaf_rows) + 1
    same = AuditDelivery.objects.filter(pk=delivery.pk, tree_size=delivery.tree_size)
    if not same.update(tree_size=after, delivered_at=now):
        return False  # another worker has sent them meanwhile, and goes on
    delivery.tree_size = after
    return len(leaf_rows) == STEP


def build_otlp_decision_record(row: AuditLog, number: int, now: datetime) -> LogRecord:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue  # noqa: PLC0415
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord  # noqa: PLC0415

    at = row.timestamp if isinstance(row.timestamp, datetime) else now
    return LogRecord(
        time_unix_nano=max(instants.instant_to_microseconds(at), 0) * 1000,
        observed_time_unix_nano=instants.instant_to_microseconds(now) * 1000,
        event_name=EVENT_NAME,
        attributes=[
            KeyValue(key=name, value=AnyValue(string_value=text))
            for name, text in iterate_decision_attributes(row, number)
        ],
    )


def iterate_decision_attributes(row: AuditLog, number: int) -> Iterator[tuple[str, str]]:
    metadata: dict[str, Any] = row.metadata if isinstance(row.metadata, dict) else {}
    judged: dict[str, Any] = metadata["judged"] if isinstance(metadata.get("judged"), dict) else {}
    attributes = {
        "gen_ai.tool.name": judged.get("tool_name") or metadata.get("tool") or row.permission,
        "gen_ai.conversation.id": judged.get("session_id") or metadata.get("session_id"),
        "gen_ai.agent.id": judged.get("agent_id") or metadata.get("agent_id"),
        "gen_ai.tool.call.decision": VERDICTS[row.event_type],
        "signalbox.decided_by": row.actor_id,
        "signalbox.reason": row.reason,
        "signalbox.request_id": row.target_id,
        "signalbox.judged_sha256": metadata.get("judged_sha256"),
        "signalbox.audit_entry": str(number),
    }
    return ((name, str(value)) for name, value in attributes.items() if value)


def export_decision_logs(records: list[LogRecord]) -> None:
    """Post one OTLP request. Raises JobAttemptFailed, OSError."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (  # noqa: PLC0415
        ExportLogsServiceRequest,
    )
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue  # noqa: PLC0415

    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    resource.resource.attributes.add(key="service.name", value=AnyValue(string_value="signalbox"))
    scope = resource.scope_logs.add()
    scope.scope.name = "signalbox"
    scope.log_records.extend(records)
    headers = {"Content-Type": "application/x-protobuf"} | settings.OTLP_HEADERS
    status, _text = http_post.post_bytes(
        f"{settings.OTLP_ENDPOINT}/v1/logs", request.SerializeToString(), headers, seconds=TIMEOUT
    )
    if not 200 <= status < 300:
        raise JobAttemptFailed(f"The receiver answered {status}.")
