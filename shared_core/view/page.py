"""The HTML page: a single file that needs no network and no library, and runs no code from a message."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from shared_core.sharing.export import atomically
from shared_core.store import Store
from shared_core.stores.sqlite.database_file import is_database
from shared_core.view.page_data import QUESTIONS, Progress, gather

SCRIPTS = ("model.js", "tree.js", "message.js", "branches.js", "overview.js", "page.js")
"""The parts of the page's script, in order. They share one scope."""

UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
"""Characters that could end the script element or that UTF-8 cannot encode. In JSON they are escaped."""

PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def page(data: Mapping[str, Any]) -> str:
    """Return the page for data that `gather` returned. Equal data gives an equal page."""
    parts = files(__package__)
    style = parts.joinpath("page.css").read_text(encoding="utf-8")
    code = "\n".join(parts.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{code}}})();\n'
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    values = {"policy": policy, "style": style, "data": _embedded(data), "script": script}
    # One pass over the template only: a message may contain text that looks like a placeholder.
    return PLACEHOLDER.sub(lambda found: values[found[1]], parts.joinpath("page.html").read_text(encoding="utf-8"))


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


def _embedded(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
