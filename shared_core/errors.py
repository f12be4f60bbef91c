"""All errors that the package raises, as a tree.

```text
InfiniteMemoryError
├── BudgetError (ValueError)              messages that must be sent exceed the budget
│   └── MessageTooLargeError              the current question does not fit
├── DuplicateError (ValueError)           an id or a branch name is taken
├── UnknownReferenceError (LookupError)   there is no such branch, message or turn
│   └── AmbiguousReferenceError           the beginning of an id fits several messages
├── StaleHeadError (RuntimeError)         another writer moved the branch in the meantime
├── EmbedderError (RuntimeError)          an embedder failed or returned unusable vectors
│   └── EmbedderMismatchError             another embedder made the stored vectors
├── RerankerError (RuntimeError)          a reranker returned no scores
├── StoreError (RuntimeError)             the store cannot be read or written
│   └── StoreUnavailableError             it cannot be just now; try again
├── InputFileError (ValueError)           a file to import is invalid
└── MissingExtraError (ImportError)       an optional dependency is not installed
```
"""

import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from types import FrameType

__all__ = [
    "AmbiguousReferenceError",
    "BudgetError",
    "DuplicateError",
    "EmbedderError",
    "EmbedderMismatchError",
    "InfiniteMemoryError",
    "InputFileError",
    "MessageTooLargeError",
    "MissingExtraError",
    "RerankerError",
    "StaleHeadError",
    "StoreError",
    "StoreUnavailableError",
    "UnknownReferenceError",
]


class InfiniteMemoryError(Exception):
    """The base class of all errors that this package raises on purpose."""


class BudgetError(InfiniteMemoryError, ValueError):
    """The messages that must be sent exceed the token budget.

    Attributes:
        needed: the tokens that these messages take.
        available: the tokens that the budget leaves for them.
    """

    def __init__(self, message: str, *, needed: int, available: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.available = available


class MessageTooLargeError(BudgetError):
    """The current question, with its newest tool group, does not fit in the budget."""


class DuplicateError(InfiniteMemoryError, ValueError):
    """An id is already stored with other content or elsewhere, or a branch name is taken.

    Attributes:
        id: the id of the message, if it is about one.
    """

    def __init__(self, message: str, *, id: str | None = None) -> None:
        super().__init__(message)
        self.id = id


class UnknownReferenceError(InfiniteMemoryError, LookupError):
    """There is no branch, message or turn of this name.

    Attributes:
        candidates: names that exist, if a choice of them helps.
    """

    def __init__(self, message: str, *, candidates: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


class AmbiguousReferenceError(UnknownReferenceError):
    """The beginning of an id fits more than one message."""


class StaleHeadError(InfiniteMemoryError, RuntimeError):
    """Another writer moved the branch in the meantime. Nothing was changed; the call may be repeated."""


class EmbedderError(InfiniteMemoryError, RuntimeError):
    """An embedder failed, or returned unusable vectors."""


class EmbedderMismatchError(EmbedderError):
    """Another embedder than the one given made the session's vectors."""


class RerankerError(InfiniteMemoryError, RuntimeError):
    """A reranker returned no scores. Recall goes on without it, and the report says so."""


class StoreError(InfiniteMemoryError, RuntimeError):
    """The store is damaged, was written by another program or a newer version, or cannot be reached."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached just now: another process holds it, or its server does not answer. Try again.

    Nothing is half done. Usually the call has done nothing; where a connection broke just before the answer, it may
    have done all of it. Messages that are sent again with the same ids are not stored twice.
    """


class InputFileError(InfiniteMemoryError, ValueError):
    """A file to import does not exist or is invalid."""


class MissingExtraError(InfiniteMemoryError, ImportError):
    """An optional dependency is not installed. The message names the extra that installs it."""


def installed(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # raised by import hooks that hide a package
        return False


def require(package: str, remedy: str) -> None:
    """Raise MissingExtraError with the remedy if a package is not installed."""
    if not installed(package):
        raise MissingExtraError(f"{package} is not installed: {remedy}", name=package)


PACKAGES = ("shared_core", "langchain_infinite_memory", "llama_index_infinite_memory")


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Show a warning at the line of the program that called the package, however deep inside of it we are."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PACKAGES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
