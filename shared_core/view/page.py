"""One HTML page that shows a session by itself: no network, no library, and nothing that was said can run in it."""

import base64
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from shared_core.store import Store
from shared_core.stores.sqlite.probe import is_database
from shared_core.view.gathering import QUESTIONS, Progress, gather

__all__ = ["page", "write_page"]

SCRIPTS = ("model.js", "tree.js", "message.js", "page.js")
"""The parts of the page's script, in order; they share one scope."""

UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
"""What could end the data, or has no form in UTF-8; JSON can write it otherwise."""

PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(data: Mapping[str, Any]) -> str:
    """Return a page that shows what `gather` returned. Equal data, equal page."""
    parts = files(__package__)
    style = parts.joinpath("page.css").read_text(encoding="utf-8")
    code = "\n".join(parts.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{code}}})();\n'
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    values = {"policy": policy, "style": style, "data": _embedded(data), "script": script}
    # In one pass, so that a message that looks like a place in the template stays a message.
    return PLACE.sub(lambda found: values[found[1]], parts.joinpath("page.html").read_text(encoding="utf-8"))


def write_page(
    store: str | Path | Store, path: str | Path, *, session_id: str = "default", user_id: str | None = None,
    questions: int | None = QUESTIONS, progress: Progress | None = None, **settings: Any,
) -> Path:  # fmt: skip
    """Write a page that shows a session: its tree, its messages, and why each prompt was as it was.

    The file appears at once or not at all, and only its owner may read it. Arguments and errors are those of `gather`.

    Args:
        store: a path of a database that exists, or a `Store`.
        path: where the page goes; what is there is replaced.
        session_id: which conversation.
        user_id: whose.
        questions: show the prompts of so many of the newest questions of each branch; None: of all.
        progress: called with how many prompts are built and how many there are to build.
        settings: other arguments of `InfiniteMemory`, such as `max_tokens`.

    Returns:
        Where the page is.

    Raises:
        ValueError: the page would replace a database.
        OSError: it cannot be written.
    """
    out = Path(path).expanduser()
    _check_place(out)
    data = gather(
        store, session_id=session_id, user_id=user_id, questions=questions, progress=progress, **settings
    )  # fmt: skip
    _write(out, page(data))
    return out


def _check_place(out: Path) -> None:
    """Raise an error where the page could not be written, before anything is read for it."""
    if is_database(out):
        raise ValueError(f"path={str(out)!r} is a file of a database; give the page one of its own")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {str(out.parent)!r}")
    if out.is_dir():
        raise IsADirectoryError(f"{str(out)!r} is a directory; give the name of a file")


def _write(out: Path, text: str) -> None:
    handle, part = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(part, out)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def _embedded(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
