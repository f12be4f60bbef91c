"""The HTML page: a single file that needs no network and no library, and runs no code from a message."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared_core.doors.view.document import conversation_html, embedded, filled, part_of, policy_of, script_of, style_of
from shared_core.doors.view.page_data import QUESTIONS, Progress, gather
from shared_core.sharing.export import atomically
from shared_core.store import Store
from shared_core.stores.sqlite.database_file import is_database

DRAW = 'conversation(JSON.parse(document.getElementById("data").textContent), {});\n'
"""What the script of the page ends with."""


def page(data: Mapping[str, Any]) -> str:
    """Return the page for data that `gather` returned. Equal data gives an equal page."""
    style, script = style_of(), script_of(DRAW)
    values = {
        "policy": policy_of(script, style), "style": style, "data": embedded(data), "script": script,
        "conversation": conversation_html(),
    }  # fmt: skip
    return filled(part_of("shared_core.doors.view", "page.html"), values)


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
