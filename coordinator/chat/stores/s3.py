"""Attached files in a bucket of S3, or of a compatible service, through django-storages.

Nothing here gives out an address of an object: every byte goes through Signalbox. Credentials are found as AWS's own
programs find them (the environment, a role), and are named nowhere.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ReadTimeoutError
from django.core.exceptions import SuspiciousOperation
from storages.backends.s3 import S3Storage
from urllib3.exceptions import HTTPError

from coordinator.chat.stores import FOLDER, ListedStoredFile, StoredFileStream, StoreUnavailable
from coordinator.chat.stores.circuit_breaker import StoreCircuitBreaker

# Seconds. With the second try, which boto3 makes by itself after a second at most, nobody waits for longer than eleven.
CONNECT_WITHIN, ANSWER_WITHIN = 3, 5
READ_WITHIN = (
    8.0  # seconds for a piece of a file; who sends one more slowly than that might as well not answer
)
AT_ONCE = 16 * 1024  # bytes after which the clock is looked at

SILENT = (ReadTimeoutError, TimeoutError)
GONE = {"404", "NoSuchKey", "NotFound"}
BEYOND = {"416", "InvalidRange"}  # the object is shorter


class Bucket(S3Storage):  # type: ignore[misc]
    """The objects below `location` in one bucket."""

    def __init__(
        self, *, bucket_name: str, location: str, endpoint_url: str | None, region_name: str
    ) -> None:
        super().__init__(
            bucket_name=bucket_name,
            location=location,
            endpoint_url=endpoint_url,
            region_name=region_name,
            # Left to boto3, which also knows tokens that expire and roles.
            access_key=None,
            secret_key=None,
            file_overwrite=True,
            default_acl=None,
            client_config=Config(
                signature_version="s3v4",
                # Services other than AWS know few other forms of addresses and of checksums. What is sent is signed
                # with its SHA-256, so the bucket takes nothing that was damaged on the way.
                s3={
                    "addressing_style": "path" if endpoint_url else "auto",
                    "payload_signing_enabled": True,
                },
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                connect_timeout=CONNECT_WITHIN,
                read_timeout=ANSWER_WITHIN,
                retries={"mode": "standard", "total_max_attempts": 2},
                max_pool_connections=32,
            ),
            transfer_config=TransferConfig(use_threads=False),
        )
        self._making = threading.Lock()
        self._client: Any = None
        self.circuit_breaker = StoreCircuitBreaker()

    @property
    def connection(self) -> Any:
        """The one for all threads: each takes 13 MB and a third of a second to make, and its client may be shared."""
        with self._making:
            if self._client is None:
                self._client = self._create_session().resource(
                    "s3",
                    region_name=self.region_name,
                    endpoint_url=self.endpoint_url,
                    config=self.client_config,
                )
            return self._client

    def _normalize_name(self, name: str) -> str:
        """Return an object's key. Raises FileNotFoundError for a name that leads out of where attachments lie."""
        try:
            key, base = str(super()._normalize_name(name)), str(super()._normalize_name(FOLDER))
        except SuspiciousOperation:
            raise FileNotFoundError(name) from None
        if key != base and not key.startswith(f"{base}/"):
            raise FileNotFoundError(name)
        return key

    def url(self, *args: Any, **options: Any) -> str:
        raise NotImplementedError("An object's address is given to nobody: files are served by Signalbox.")

    def save(self, name: str, content: Any, max_length: int | None = None) -> str:
        with self.guard_s3_request_with_circuit_breaker():
            return str(super().save(name, content, max_length))

    def delete(self, name: str) -> None:
        with self.guard_s3_request_with_circuit_breaker():
            super().delete(name)

    def open_byte_range(self, name: str, start: int, length: int) -> StoredFileStream:
        range_header = f"bytes={start}-{start + length - 1}"
        with self.guard_s3_request_with_circuit_breaker(answers=False):
            client = self.connection.meta.client
            try:
                answer = client.get_object(
                    Bucket=self.bucket_name, Key=self._normalize_name(name), Range=range_header
                )
            except ClientError as problem:
                if s3_error_code(problem) not in BEYOND:
                    raise
                return io.BytesIO()
        return S3ObjectStream(self, answer["Body"])

    def file_modified_at(self, name: str) -> datetime:
        with self.guard_s3_request_with_circuit_breaker():
            modified_time: datetime = self.get_modified_time(name)
            return modified_time

    def iterate_stored_files(self) -> Iterator[ListedStoredFile]:
        below = len(self._normalize_name(FOLDER)) - len(FOLDER)
        with self.guard_s3_request_with_circuit_breaker():
            pages = self.connection.meta.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket_name, Prefix=f"{self._normalize_name(FOLDER)}/"
            )
            for page in pages:
                for entry in page.get("Contents", ()):
                    yield ListedStoredFile(entry["Key"][below:], entry["Size"], entry["LastModified"])

    def describe_file_location(self, name: str) -> str:
        return f"s3://{self.bucket_name}/{super()._normalize_name(name)}"

    @contextmanager
    def guard_s3_request_with_circuit_breaker(self, *, answers: bool = True) -> Iterator[None]:
        """Say what went wrong as places do; ask a bucket that fell silent only as `StoreCircuitBreaker` says.

        Without `answers`, what comes of it is still to be read (`S3ObjectStream`), and nothing is known before.
        """
        turn = self.circuit_breaker.acquire_request_turn_or_none()
        if turn is None:
            raise StoreUnavailable(self.bucket_not_answering_message())
        try:
            yield
            if answers:
                self.circuit_breaker.record_success()
        except ClientError as problem:
            self.circuit_breaker.record_success()
            code = s3_error_code(problem)
            if code in GONE:
                raise FileNotFoundError(code) from None
            raise StoreUnavailable(f"the S3 bucket {self.bucket_name} answers {code[:60]}") from None
        except NoCredentialsError:
            raise StoreUnavailable("there are no credentials for S3 (AWS_ACCESS_KEY_ID)") from None
        except (BotoCoreError, HTTPError, OSError) as problem:
            if isinstance(problem, StoreUnavailable | FileNotFoundError):
                raise
            self.circuit_breaker.open_after_missing_response()
            raise self.build_bucket_unavailable_error(problem) from None
        finally:
            self.circuit_breaker.release_request_turn(turn)

    def build_bucket_unavailable_error(self, problem: Exception) -> StoreUnavailable:
        """Return the words for a bucket from which nothing came."""
        return StoreUnavailable(f"{self.bucket_not_answering_message()} ({type(problem).__name__})")

    def bucket_not_answering_message(self) -> str:
        return f"the S3 bucket {self.bucket_name} does not answer"


def s3_error_code(problem: ClientError) -> str:
    return str(problem.response.get("Error", {}).get("Code", ""))


class S3ObjectStream:
    """An object's bytes as they come."""

    def __init__(self, bucket: Bucket, body: Any) -> None:
        self._bucket, self._body = bucket, body

    def read(self, size: int, /) -> bytes:
        circuit_breaker, until = self._bucket.circuit_breaker, time.monotonic() + READ_WITHIN
        received_bytes = bytearray()
        try:
            while len(received_bytes) < size and (
                part := self._body.read(min(size - len(received_bytes), AT_ONCE))
            ):
                received_bytes += part
                if time.monotonic() > until:
                    raise TimeoutError
        except SILENT as problem:
            circuit_breaker.open_after_missing_response()
            raise self._bucket.build_bucket_unavailable_error(problem) from None
        except (BotoCoreError, HTTPError, OSError) as problem:
            circuit_breaker.record_incomplete_response()
            raise self._bucket.build_bucket_unavailable_error(problem) from None
        circuit_breaker.record_success()
        return bytes(received_bytes)

    def close(self) -> None:
        self._body.close()
