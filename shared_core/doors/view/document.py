"""What a page is put together from: the parts of its script and its style, and the policy that lets nothing else in."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

__all__ = ["conversation_html", "embedded", "filled", "part_of", "policy_of", "script_of", "style_of"]

PACKAGE = "shared_core.doors.view"

FOUNDATION = ("elements.js", "report.js")
"""What every page has. The parts of a page share one scope."""

CONVERSATION = ("model.js", "tree.js", "message.js", "branches.js", "overview.js", "page.js")
"""The parts of the function that draws a conversation, in order. They share its scope."""

UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
"""Characters that could end the script element or that UTF-8 cannot encode. In JSON they are escaped."""

PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def part_of(package: str, name: str) -> str:
    """Return the text of a file of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def script_of(*ends: str) -> str:
    """Return the script of a page: its ends are run when `conversation(data, live)` can be called.

    It draws a conversation into the elements of `conversation_html`. `data` is what `gather` returned. `live` is what a
    page adds that can ask a server: `at`, the id of the message to begin with, or null; `actions(node)`, an element for
    each message, and `head()`, one for all; `build(id)`, which has a prompt built; and `signal`, which ends the
    listeners of the document. A page without a server passes an empty object.
    """
    drawing = "\n".join(part_of(PACKAGE, name) for name in CONVERSATION)
    parts = [part_of(PACKAGE, name) for name in FOUNDATION]
    whole = "\n".join([*parts, f"function conversation(data, live) {{\n{drawing}}}\n", *ends])
    return f'(() => {{\n"use strict";\n{whole}}})();\n'


def style_of(*more: str) -> str:
    """Return the style of a page, with more of it at the end."""
    return "\n".join([part_of(PACKAGE, "page.css"), *more])


def conversation_html() -> str:
    """Return the elements that `conversation` fills."""
    return part_of(PACKAGE, "conversation.html")


def policy_of(script: str, style: str, more: Sequence[str] = ()) -> str:
    """Return the content security policy: this script and this style, and nothing else but what more directives say."""
    directives = [
        "default-src 'none'", f"script-src '{_hash(script)}'", f"style-src '{_hash(style)}'", *more, "base-uri 'none'",
        "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
    ]  # fmt: skip
    return "; ".join(directives)


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its placeholders replaced, in one pass: a value may look like a placeholder."""
    return PLACEHOLDER.sub(lambda found: values[found[1]], template)


def embedded(data: Mapping[str, Any]) -> str:
    """Return data as JSON that cannot end the element it is in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
