"""Routers whose operations share the model of their error responses.

ninja makes a model for each status of each operation. Nearly three hundred of them are the same, and making them took a
tenth of the time in which a server starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ninja

from coordinator.api.shared_types import Problem


class Refusal(ninja.Schema):
    """An answer as ninja holds it: what is sent is `response`."""

    response: Problem


class Router(ninja.Router):
    """A router of one noun's operations."""

    def add_api_operation(
        self, path: str, methods: list[str], view_func: Callable[..., Any], **options: Any
    ) -> None:
        """Add the operation; its refusals, which it raises and never returns, are only documented."""
        refusals: list[int] = []
        if isinstance(answers := options.get("response"), dict):
            refusals = [status for status, model in answers.items() if model is Problem]
            options["response"] = {status: answers[status] for status in answers if status not in refusals}
        super().add_api_operation(path, methods, view_func, **options)
        operation = self.path_operations[path].operations[-1]
        operation.response_models.update(dict.fromkeys(refusals, Refusal))
