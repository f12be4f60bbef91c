"""What became of an import."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ImportResult"]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What became of one session of a file.

    Attributes:
        format: what the file was: `"infinite-memory"`, `"chatgpt"`, `"openai"`, `"langchain"` or `"llama-index"`.
        session_id: where it went.
        user_id: whose that is.
        new: how many messages were stored.
        known: how many were stored already, with the same content in the same place.
        forgotten: how many were not stored because they had been forgotten here.
        remapped: of the new and known ones, those that have another id here, because something else is stored under
            theirs: id in the file -> id here.
        branches: branch in the file -> branch here; another name where a branch of that name leads elsewhere.
        head: the branch, or the message, where whoever wrote the file stood; None: not known.
        created: whether nothing had been in the session.
    """

    format: str
    session_id: str
    user_id: str | None = None
    new: int = 0
    known: int = 0
    forgotten: int = 0
    remapped: Mapping[str, str] = field(default_factory=dict)
    branches: Mapping[str, str] = field(default_factory=dict)
    head: str | None = None
    created: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"remapped": dict(self.remapped), "branches": dict(self.branches)}
