"""Parsing, responses and errors of every REST operation, compatible with the recorded coordinator's clients.

Errors are `{"detail": …}`. A body that does not fit is 422 with one entry per validation error, each with type,
location (`["body", "prompt"]`), message and the input found there, which is the form pydantic 2 and FastAPI use.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

import msgspec
from django.db import DataError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError, ValidationErrorContext
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation
from ninja.parser import Parser
from ninja.renderers import BaseRenderer
from ninja.schema import DjangoGetter

from coordinator.api.auth import KeyAuth
from coordinator.api.edge_operations import add_edge_operations
from coordinator.errors import ServiceBusy, SignalboxError, UnprocessableRequest
from coordinator.identity.declarations import SAFE_METHODS
from coordinator.lib import json_bounds
from coordinator.lib import process_metrics as meters
from coordinator.lib.body_limits import JSON, SMALL, BodyAllowance

UNREADABLE = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    RecursionError,
    json_bounds.JsonTooDeep,
    json_bounds.JsonTooHeavy,
)
NO_DATABASE = (
    "The database is busy or cannot be reached. Check whether your change was saved, then try again."
)


class JsonParser(Parser):
    """Reads a body as strict JSON: no NaN, no lone surrogates, no trailing text."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        """Return the decoded body; raises msgspec.DecodeError, TooDeep or TooHeavy, which become a 422."""
        json_bounds.require_json_bounds(request.body)
        return cast("dict[str, Any]", msgspec.json.decode(request.body))


class JsonRenderer(BaseRenderer):
    """Writes JSON; a value JSON has no form for is written as its text."""

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        """Return the bytes of `data`."""
        return msgspec.json.encode(data, enc_hook=str)


def document_authentication_errors(operation: dict[str, Any]) -> None:
    """Say of an operation that it asks for no key, or how it refuses who has none that will do."""
    if not operation.setdefault("security", []):
        return
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status, phrase in ((401, "Unauthorized"), (403, "Forbidden")):
        if not {status, str(status)} & operation["responses"].keys():
            operation["responses"][status] = {"description": phrase, "content": problem}


def drop_unused_schemas(document: OpenAPISchema) -> None:
    """Remove the schemas that nothing refers to, such as those that ninja makes of queries."""
    schemas = document["components"]["schemas"]
    while True:
        text = msgspec.json.encode(document, enc_hook=str).decode()
        unused = [name for name in schemas if f'"#/components/schemas/{name}"' not in text]
        if not unused:
            return
        for name in unused:
            del schemas[name]


class SignalboxAPI(NinjaAPI):
    """A NinjaAPI that reads, answers and fails as the recorded coordinator did."""

    def __init__(self, **options: Any) -> None:
        super().__init__(parser=JsonParser(), renderer=JsonRenderer(), **options)
        self.add_exception_handler(SignalboxError, self.build_service_error_response)
        self.add_exception_handler(HttpError, self.build_http_error_response)
        self.add_exception_handler(OperationalError, self.build_busy_database_response)
        self.add_exception_handler(InterfaceError, self.build_busy_database_response)
        self.add_exception_handler(OverflowError, self.build_out_of_range_response)
        self.add_exception_handler(DataError, self.build_out_of_range_response)

    def get_openapi_schema(self, **_options: Any) -> OpenAPISchema:
        """Return the OpenAPI document, with the operations that the edge serves."""
        return self.openapi_document

    @cached_property
    def openapi_document(self) -> OpenAPISchema:
        """The document, which takes a second to make and which anybody may ask for: made once per process."""
        document = super().get_openapi_schema()
        add_edge_operations(document)
        document["servers"] = [{"url": "/", "description": "The server that answers this document"}]
        document["info"]["license"] = {"name": "Apache 2.0", "identifier": "Apache-2.0"}
        scopes = self.scopes_by_operation()
        for operation in (
            operation_spec for methods in document["paths"].values() for operation_spec in methods.values()
        ):
            names = operation.get("x-scopes") or scopes.get(operation["operationId"])
            if names:
                operation["x-scopes"] = names
                scope_text = f"Scopes: {', '.join(names)}."
                operation["description"] = f"{operation.get('description', '')}\n\n{scope_text}".strip()
            document_authentication_errors(operation)
        drop_unused_schemas(document)
        return document

    def scopes_by_operation(self) -> dict[str, list[str]]:
        """Return which scopes each operation asks for, by its id in the document."""
        return {
            operation.operation_id or self.get_openapi_operation_id(operation): sorted(guard.scopes)
            for router in self._get_bound_routers()
            for view in router.path_operations.values()
            for operation in view.operations
            for guard in operation.auth_callbacks
            if isinstance(guard, KeyAuth)
        }

    def _get_urls(self) -> list[URLResolver | URLPattern]:
        """Return the URLs of the API. The view of each path declares how much its operations may be sent."""
        urls = super()._get_urls()
        paths = [
            path
            for router in self._get_bound_routers()
            for path in router.path_operations.values()
            for _ in path.operations  # ninja makes a URL for each, and one view answers them all
        ]
        for url, path in zip(urls[-len(paths) - 1 : -1], paths, strict=True):  # the last one is ninja's own
            url.callback.body_allowances = {  # type: ignore[union-attr] # read by identity/declarations.py
                method: read_operation_body_allowance(operation)
                for operation in path.operations
                for method in operation.methods
            }
        return urls

    def get_content_type(self) -> str:
        """Return JSON's type alone: its charset is always UTF-8, and the recorded answers name none."""
        return "application/json"

    def build_service_error_response(self, request: HttpRequest, error: Any) -> HttpResponse:
        """Answer an expected error with its status, its detail and, where it has one, Retry-After."""
        response = self.create_response(request, {"detail": error.detail}, status=error.status)
        if error.retry_after is not None:
            response.headers["Retry-After"] = str(error.retry_after)
        if error.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def build_http_error_response(self, request: HttpRequest, error: Any) -> HttpResponse:
        """Answer ninja's own errors; a body that is not JSON in the recorded form."""
        if isinstance(error.__cause__, UNREADABLE):
            validation_error = {
                "type": "json_invalid",
                "loc": ["body", 0],
                "msg": "JSON decode error",
                "input": {},
                "ctx": {"error": str(error.__cause__)},
            }
            return self.create_response(request, {"detail": [validation_error]}, status=422)
        return self.create_response(request, {"detail": error.message}, status=error.status_code)

    def build_busy_database_response(self, request: HttpRequest, error: Any) -> HttpResponse:
        """A lock that did not come free in time, a database that only reads, or one that went away.

        It may have gone while it committed: only then was something written.
        """
        meters.BUSY.add()
        busy = ServiceBusy(NO_DATABASE, retry_after=1)
        return self.build_service_error_response(request, busy)

    def build_out_of_range_response(self, request: HttpRequest, error: Any) -> HttpResponse:
        """A number or an instant that no column holds (2**63, the year 10000 in UTC): nothing was written."""
        message = str(error).strip().partition("\n")[0]
        return self.build_service_error_response(
            request, UnprocessableRequest(f"A value is out of range: {message}.")
        )

    def validation_error_from_error_contexts(
        self, error_contexts: list[ValidationErrorContext[Any]]
    ) -> ValidationError:
        """Collect the faults of all parts of a request in the recorded form."""
        return ValidationError(
            [
                validation_error_as_json(cast("dict[str, Any]", error), context.model)
                for context in error_contexts
                for error in context.pydantic_validation_error.errors(include_url=False)
            ]
        )


def read_operation_body_allowance(operation: Operation) -> BodyAllowance:
    """Return how much an operation may be sent.

    That is what `declare_request_body_allowance` says, or JSON where it changes something and asks who calls.
    """
    if SAFE_METHODS.issuperset(operation.methods) or not operation.auth_callbacks:
        return SMALL
    allowance: BodyAllowance = getattr(operation.view_func, "body_allowance", JSON)
    return allowance


def validation_error_as_json(error: dict[str, Any], model: Any) -> dict[str, Any]:
    """Return one pydantic error as clients know it: its place without our parameter's name."""
    location = tuple(model.__ninja_flatten_map_reverse__.get(error["loc"], error["loc"]))
    single = getattr(model, "__read_from_single_attr__", None)
    if single and location[:1] == (single,):
        location = location[1:]
    validation_error = {
        "type": error["type"],
        "loc": [model.__ninja_param_source__, *location],
        "msg": error["msg"],
        "input": input_value._obj if isinstance(input_value := error["input"], DjangoGetter) else input_value,
    }
    if "ctx" in error:
        validation_error["ctx"] = {name: str(value) for name, value in error["ctx"].items()}
    return validation_error
