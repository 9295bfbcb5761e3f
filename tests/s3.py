"""A small S3 for tests: what our use of boto3 asks for, in memory, over HTTP. `python -m tests.s3 9000` serves it.

moto would be thirty more packages for six verbs. Here what is refused by S3 is refused too: a foreign key id, a body
that is not what was signed, a part of a multipart upload that is too small.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

KEY = "test-key-id"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": "test-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}
SMALLEST_PART = 5 * 1024 * 1024


class S3(ThreadingHTTPServer):
    """Buckets are there when they are written to; an object's name begins with its bucket's."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.asked: list[str] = []  # verb, path and range of each request
        self.fault = ""  # a code that every request is answered with, or "cut" for half of what is read

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def settings(self, **more: str) -> dict[str, str]:
        """Return the environment of a server whose bucket this is."""
        return {
            "SIGNALBOX_ATTACHMENTS": "s3",
            "SIGNALBOX_S3_BUCKET": "box",
            "SIGNALBOX_S3_ENDPOINT": self.url,
        } | (CREDENTIALS | more)

    def put(self, name: str, data: bytes, at: datetime | None = None) -> None:
        self.objects[name] = (data, at or datetime.now(UTC))

    def reading(self) -> list[str]:
        return [one for one in self.asked if one.startswith("GET") and "list-type" not in one]


@contextmanager
def serving() -> Iterator[S3]:
    """Run one in a thread."""
    with S3() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        name, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
        signed = self.headers.get("x-amz-content-sha256")
        if self.server.fault not in {"", "cut"}:
            return self._error(403, self.server.fault)  # what boto3 does not try again
        if f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
            return self._error(403, "InvalidAccessKeyId")
        if signed != hashlib.sha256(body).hexdigest():
            return self._error(400, "XAmzContentSHA256Mismatch")
        return getattr(self, f"_{self.command.lower()}")(
            name, {key: value[0] for key, value in query.items()}, body
        )

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _get(self, name: str, query: dict[str, str], _body: bytes) -> None:
        if "list-type" in query:
            self._list(name.strip("/"), query)
        elif name not in self.server.objects:
            self._error(404, "NoSuchKey")
        else:
            self._object(name)

    def _object(self, name: str) -> None:
        data, at = self.server.objects[name]
        first, last = 0, len(data) - 1
        if wanted := self.headers.get("Range"):
            begin, _, end = wanted.removeprefix("bytes=").partition("-")
            first, last = int(begin), min(last, int(end or last))
            if first >= len(data):
                self._error(416, "InvalidRange")
                return
        head = {"Last-Modified": at.strftime("%a, %d %b %Y %H:%M:%S GMT"), "ETag": '"x"'}
        head["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self._answer(206 if wanted else 200, data[first : last + 1], head)

    _head = _get

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        below = f"{bucket}/{query.get('prefix', '')}"
        after = query.get("continuation-token", "")
        names = sorted(name for name in self.server.objects if name.startswith(below) and name > after)
        most = int(query.get("max-keys", 1000))
        rows = "".join(
            f"<Contents><Key>{escape(name.removeprefix(f'{bucket}/'))}</Key><Size>{len(data)}</Size>"
            f"<LastModified>{at:%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
            for name in names[:most]
            for data, at in [self.server.objects[name]]
        )
        more = len(names) > most
        token = f"<NextContinuationToken>{escape(names[most - 1])}</NextContinuationToken>" if more else ""
        self._xml(
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        )

    def _put(self, name: str, query: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            self.server.parts[query["uploadId"]][int(query["partNumber"])] = body
        else:
            self.server.put(name, body)
        self._answer(200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'})

    def _post(self, name: str, query: dict[str, str], _body: bytes) -> None:
        if "uploads" in query:
            upload = uuid.uuid4().hex
            self.server.parts[upload] = {}
            return self._xml(
                f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            )
        parts = [data for _, data in sorted(self.server.parts.pop(query["uploadId"]).items())]
        if any(len(part) < SMALLEST_PART for part in parts[:-1]):
            return self._error(400, "EntityTooSmall")
        self.server.put(name, b"".join(parts))
        return self._xml('<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>')

    def _delete(self, name: str, query: dict[str, str], _body: bytes) -> None:
        if "uploadId" in query:
            self.server.parts.pop(query["uploadId"], None)
        else:
            self.server.objects.pop(name, None)
        self._answer(204, b"")

    def _error(self, status: int, code: str) -> None:
        self._xml(f"<Error><Code>{code}</Code><Message>no</Message></Error>", status)

    def _xml(self, text: str, status: int = 200) -> None:
        self._answer(status, text.encode(), {"Content-Type": "application/xml"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD" or not body:
            return
        if self.server.fault == "cut" and self.command == "GET":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    S3(int(sys.argv[1])).serve_forever()
