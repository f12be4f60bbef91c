"""Every error the package raises, as one tree.

InfiniteMemoryError
├── BudgetError (ValueError)              what must be sent does not fit the budget
│   └── MessageTooLargeError              the current question alone does not fit
├── DuplicateError (ValueError)           an id or a branch name is taken
├── UnknownReferenceError (LookupError)   no such branch, message or turn
│   └── AmbiguousReferenceError           an id prefix fits several messages
├── StaleHeadError (RuntimeError)         another writer moved the branch meanwhile
├── EmbedderError (RuntimeError)          an embedder failed or returned unusable vectors
│   └── EmbedderMismatchError             the stored vectors are another embedder's
├── StoreError (RuntimeError)             the store cannot be read or written
├── InputFileError (ValueError)           a file to import is not what it should be
└── MissingExtraError (ImportError)       an optional dependency is not installed
"""

from collections.abc import Sequence

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
    "StaleHeadError",
    "StoreError",
    "UnknownReferenceError",
]


class InfiniteMemoryError(Exception):
    """The root: catch it to catch everything this package raises on purpose."""


class BudgetError(InfiniteMemoryError, ValueError):
    """What must always be sent is larger than the token budget.

    Attributes:
        needed: tokens that would have to be sent.
        available: tokens the budget leaves for it.
    """

    def __init__(self, message: str, *, needed: int, available: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.available = available


class MessageTooLargeError(BudgetError):
    """The current question, with its newest tool group, is larger than the budget."""


class DuplicateError(InfiniteMemoryError, ValueError):
    """An id is already stored with other content, or a branch name is taken."""


class UnknownReferenceError(InfiniteMemoryError, LookupError):
    """No branch, message or turn goes by this name.

    Attributes:
        candidates: what exists instead, as far as it helps to choose.
    """

    def __init__(self, message: str, *, candidates: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


class AmbiguousReferenceError(UnknownReferenceError):
    """An id prefix fits more than one message."""


class StaleHeadError(InfiniteMemoryError, RuntimeError):
    """Another writer moved the branch meanwhile; nothing was changed, and the same may be tried again."""


class EmbedderError(InfiniteMemoryError, RuntimeError):
    """An embedder raised, or returned vectors that cannot be used."""


class EmbedderMismatchError(EmbedderError):
    """The session's vectors were made by another embedder than the one given."""


class StoreError(InfiniteMemoryError, RuntimeError):
    """The store is corrupt, foreign, newer than this package, or cannot be reached."""


class InputFileError(InfiniteMemoryError, ValueError):
    """A file to import does not exist or does not hold what it should."""


class MissingExtraError(InfiniteMemoryError, ImportError):
    """An optional dependency is not installed; the message names the extra."""
