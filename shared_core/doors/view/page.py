"""The HTML page: one document, which holds the data of a session or asks a server for it, and runs nothing else."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from shared_core.doors.view.page_data import QUESTIONS, Progress, gather
from shared_core.sharing.export import atomically
from shared_core.store import Store
from shared_core.stores.sqlite.database_file import is_database

__all__ = ["embedded", "page", "policy", "write_page"]

FOUNDATION = ("elements.js", "report.js")
"""What all of the page is made of. The parts of its script share one scope."""

CONVERSATION = ("model.js", "tree.js", "message.js", "branches.js", "overview.js", "conversation.js")
"""The parts of `conversation(data, live)`, the function that draws a session. They share its scope.

`data` is what `gather` returned. `live` is what a page adds that can ask a server: `at`, the id of the message to begin
with, or null; `actions(node)`, an element for each message, and `head()`, one for all; `build(id)`, which has a prompt
built; and `signal`, which ends the listeners of the document. A file passes an empty object.
"""

SHELL = ("server.js", "sessions.js", "requests.js", "changes.js", "shell.js")
"""What is around a session on a server, and the start of the page: it draws the data that it holds, or asks for it."""

UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
"""Characters that could end the script element or that UTF-8 cannot encode. In JSON they are escaped."""

PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def page(data: Mapping[str, Any], allowed: Sequence[str] = ()) -> str:
    """Return the page. Equal data gives an equal page.

    Args:
        data: what `gather` returned; or, for a page that asks its server, whether it needs a `token` for that.
        allowed: what else its policy allows, as directives.
    """
    values = {
        "policy": policy(allowed), "style": _part("page.css"), "script": _script(), "data": embedded(data),
    }  # fmt: skip
    # In one pass: a value may look like a placeholder.
    return PLACEHOLDER.sub(lambda found: values[found[1]], _part("page.html"))


def policy(allowed: Sequence[str] = ()) -> str:
    """Return the content security policy: the page's script and style, and nothing else but what is allowed."""
    directives = [
        "default-src 'none'", f"script-src '{_hash(_script())}'", f"style-src '{_hash(_part('page.css'))}'", *allowed,
        "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
    ]  # fmt: skip
    return "; ".join(directives)


def embedded(data: Mapping[str, Any]) -> str:
    """Return data as JSON that cannot end the element it is in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@cache
def _part(name: str) -> str:
    return files("shared_core.doors.view").joinpath(name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    foundation, conversation, shell = ("\n".join(map(_part, names)) for names in (FOUNDATION, CONVERSATION, SHELL))
    whole = f"{foundation}\nfunction conversation(data, live) {{\n{conversation}}}\n\n{shell}"
    return f'(() => {{\n"use strict";\n{whole}}})();\n'


@cache
def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def write_page(
    store: str | Path | Store, path: str | Path, *, session_id: str = "default", user_id: str | None = None,
    questions: int | None = QUESTIONS, progress: Progress | None = None, **settings: Any,
) -> Path:  # fmt: skip
    """Write a page that shows a session: its tree, its messages, and an explanation of each prompt.

    The file appears complete or not at all, and only its owner may read it. Arguments and errors are those of `gather`.

    Args:
        store: the path of an existing database, or a `Store`.
        path: the file to write; an existing file is replaced.
        session_id: the ID of the conversation.
        user_id: the ID of its user. None: it has no user.
        questions: how many of the newest questions of each branch are shown with their prompt. None: all.
        progress: called with the number of prompts built and the number of prompts to build.
        settings: other arguments of `InfiniteMemory`, such as `max_tokens`.

    Returns:
        The path of the page.

    Raises:
        ValueError: the page would replace a database.
        OSError: there is no such folder, or the path is one.
        StoreError: the page cannot be written.
    """
    out = Path(path).expanduser()
    _check_path(out)
    data = gather(
        store, session_id=session_id, user_id=user_id, questions=questions, progress=progress, **settings
    )  # fmt: skip
    with atomically(out, keep_mode=False) as file:
        file.write(page(data).encode())
    return out


def _check_path(out: Path) -> None:
    """Raise an error if the page cannot be written there, before the work of building it begins."""
    if is_database(out):
        raise ValueError(f"path={str(out)!r} is a file of a database: choose another file for the page")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {str(out.parent)!r}")
    if out.is_dir():
        raise IsADirectoryError(f"{str(out)!r} is a directory: give the name of a file")
