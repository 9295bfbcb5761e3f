"""A URL converter for ids of other programs: any text, also empty or with slashes."""

from __future__ import annotations

from django.urls import register_converter


class AnyTextConverter:
    regex = r"[\s\S]*"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(AnyTextConverter, "text")
