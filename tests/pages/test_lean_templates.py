"""What templates are sent as: their lines are for those who read them."""

from __future__ import annotations

import pytest

from dashboard.frame.lean_templates import strip_template_indentation


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        ("<b>one</b>\n    <b>two</b>", "<b>one</b> <b>two</b>"),
        ("<b>one</b><b\n  >two</b>", "<b>one</b><b>two</b>"),
        ("<p>\n  text\n</p>", "<p>text</p>"),
        ('<td\n  class="num"\n>\n  3\n</td>', '<td class="num">3</td>'),
        ("<pre>\n  kept\n</pre>", "<pre>\n  kept\n</pre>"),
        ("<textarea>\n  kept\n</textarea>", "<textarea>\n  kept\n</textarea>"),
    ],
)
def test_a_template_is_sent_without_its_indentation(source: str, sent: str) -> None:
    assert strip_template_indentation(source) == sent
