"""A history that a client sends again, as far as it was followed, and the result of matching one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import not_

from shared_core.messages import Message, short_repr
from shared_core.records import Position, Record


@dataclass(frozen=True, slots=True)
class FollowedHistory:
    """A client's history, as far as it was followed.

    Attributes:
        ids: for each message, the id it is stored under. None: it is not stored, because it was forgotten, or because
            the client inserted it before messages that were stored earlier.
        prompts: for each message, whether it is part of the system prompt.
        branch: the branch at whose end the history was, if the caller sets it. The reply that ends the turn is then
            added to this branch, even if others have added messages to it since; or, if the branch has another name by
            now, to `main` or the newest branch that holds the question. Otherwise, or if the turn has ended there with
            another reply, it opens a branch.
    """

    ids: tuple[str | None, ...] = ()
    prompts: tuple[bool, ...] = ()
    branch: str | None = None

    def __repr__(self) -> str:
        return short_repr(self)

    def __len__(self) -> int:
        return len(self.ids)

    def upto(self, count: int) -> "FollowedHistory":
        """Return the first `count` messages; ValueError if the history is shorter."""
        if not 0 <= count <= len(self):
            raise ValueError(f"count={count!r}: this history has {len(self)} messages")
        if count == len(self):
            return self
        return FollowedHistory(self.ids[:count], self.prompts[:count])

    def split(self) -> tuple[list[str | None], list[str]]:
        """Return the ids of what was said, and the ids of the system prompt."""
        said = list(compress(self.ids, map(not_, self.prompts)))
        return said, [id_ for id_ in compress(self.ids, self.prompts) if id_ is not None]


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of matching a history.

    Attributes:
        at: the position of its newest stored message. None: the history continues what is checked out.
        turn: the turn of that message, which the next replies join. None: they join none in particular.
        new: the messages to store after that position, in order, with ids.
        history: the whole history.
        prompt_id: the `turn_id` of the system prompt that system messages among `new` join. None: they replace it.
        copied: for the ids of new messages that are stored elsewhere, what they are copies of.
        alone: whether the new messages came without what is said before them; see `Draft`.
    """

    at: Position | None
    turn: str | None
    new: tuple[Message, ...]
    history: FollowedHistory
    prompt_id: str | None = None
    copied: Mapping[str, Record] = field(default_factory=dict)
    alone: bool = False
