"""What a worker under load notes of its calls: a line before each call, and a line after it."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared_core.errors import StoreUnavailableError


@dataclass(frozen=True)
class Call:
    """A call of a worker.

    Attributes:
        worker: the number of the worker; one that was killed has a successor of the same number.
        verb: `add`, `context`, `search`, `messages`, `fork` or `forget`.
        session: the name of the session.
        branch: what was checked out; of `fork`, the new branch.
        ids: the messages that were added or forgotten, or the one that was asked about.
        began: when, in nanoseconds of the clock that all processes of a machine share.
        ended: when it returned or raised; None: the worker was killed meanwhile.
        seen: the ids that it showed, in order; of `add` and `forget`, those returned.
        took: the seconds that the call itself took, without the notes.
        outcome: `done`, `unavailable` (StoreUnavailableError), `failed` (any other error), or `killed`.
        said: the error.
    """

    worker: int
    verb: str
    session: str
    branch: str
    ids: tuple[str, ...]
    began: int
    ended: int | None = None
    seen: tuple[str, ...] = ()
    took: float = 0.0
    outcome: str = "killed"
    said: str = field(default="", compare=False)


class Journal:
    """Notes calls in a file, so that a killed process leaves all that it knew.

    Args:
        path: the file; it is created.
        worker: the number of the worker.
    """

    def __init__(self, path: Path, worker: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        self._worker = worker

    def call(
        self, verb: str, session: str, branch: str, ids: Sequence[str], work: Callable[[], Iterable[str]]
    ) -> tuple[str, ...] | None:
        """Do some work, and return the ids it shows; None if the store was not available.

        Raises:
            Exception: any other error of the work, after it was noted.
        """
        self._write({"worker": self._worker, "verb": verb, "session": session, "branch": branch, "ids": list(ids)})
        began = time.perf_counter()
        try:
            seen = tuple(work())
        except StoreUnavailableError as error:
            self._write({"outcome": "unavailable", "said": str(error)})
            return None
        except Exception as error:
            self._write({"outcome": "failed", "said": f"{type(error).__name__}: {error}"})
            raise
        self._write({"outcome": "done", "seen": seen, "took": time.perf_counter() - began})
        return seen

    def _write(self, line: dict[str, Any]) -> None:
        # Before a call the time is noted earlier than it begins, and after it later than it ended, so what the notes
        # call earlier was earlier.
        os.write(self._file, json.dumps({"at": time.monotonic_ns(), **line}).encode() + b"\n")
        os.fdatasync(self._file)


def calls_in(path: Path) -> Iterator[Call]:
    """Yield the calls of a journal; the last line may have been cut off."""
    begun: dict[str, Any] | None = None
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        note = json.loads(line)
        if "verb" in note:
            begun = {**note, "ids": tuple(note["ids"]), "began": note["at"]}
            del begun["at"]
            continue
        assert begun is not None
        ended = {"ended": note["at"], "seen": tuple(note.get("seen", ()))}
        yield Call(**begun, **ended, **{name: note[name] for name in ("took", "outcome", "said") if name in note})
        begun = None
    if begun is not None:
        yield Call(**begun)


def calls_of(folder: Path) -> list[Call]:
    """Return the calls of all journals of a folder, by the time at which they began."""
    return sorted((call for path in folder.glob("*.journal") for call in calls_in(path)), key=lambda call: call.began)
