"""The page of the inspector: one document without any data, which asks for a token before it shows something."""

from functools import cache
from typing import NamedTuple

from shared_core.doors.view.document import conversation_html, filled, part_of, policy_of, script_of, style_of

__all__ = ["LivePage", "live_page"]

PACKAGE = "shared_core.doors.openai_proxy.inspector"

SCRIPTS = ("api.js", "sessions.js", "requests.js", "changes.js", "shell.js")
"""The parts of the script, in order. They share the scope of the functions that draw a conversation."""


class LivePage(NamedTuple):
    """The page and the policy that it is sent with."""

    html: str
    policy: str


@cache
def live_page(tokens_needed: bool) -> LivePage:
    """Return the page; it asks for a token at once if one is needed."""
    style = style_of(part_of(PACKAGE, "inspector.css"))
    script = script_of(*(part_of(PACKAGE, name) for name in SCRIPTS))
    values = {
        "style": style,
        "script": script,
        "conversation": conversation_html(),
        "tokens": "needed" if tokens_needed else "unused",
    }
    more = ("connect-src 'self'", "img-src data:", "frame-ancestors 'none'")
    return LivePage(filled(part_of(PACKAGE, "inspector.html"), values), policy_of(script, style, more))
