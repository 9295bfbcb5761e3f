"""Ids that other programs chose: any text, slashes and nothing at all included. One odd row must not break a list."""

from __future__ import annotations

from django.urls import register_converter


class AnyTextConverter:
    regex = r"[\s\S]*"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(AnyTextConverter, "text")
