"""What a buffer can do beside LlamaIndex's protocol: search, branch, forget, close."""

import asyncio
from datetime import datetime
from typing import Any, NamedTuple, Self

from llama_index.core.base.llms.types import ChatMessage

from llama_index_infinite_memory.conversation import copied
from llama_index_infinite_memory.serialization import Handle
from shared_core.aio import AsyncInfiniteMemory
from shared_core.messages import Role
from shared_core.recall.ranking import ScoredMessage

__all__ = ["FoundMessage", "Verbs"]


class FoundMessage(NamedTuple):
    """A message that matches a search, as a copy; `id` names it for `branch` and `checkout`."""

    message: ChatMessage
    score: float
    id: str


class Verbs(Handle):
    """The part of a buffer that needs no more than its memory."""

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)

    def _mirror(self, messages: list[ChatMessage] | None = None) -> None:
        if (there := self._attached.chat_store) is not None:
            shown = self.get_all() if messages is None else messages
            there[0].set_messages(there[1], [copied(message) for message in shown])

    def forget(self) -> None:
        """Erase the session, with all its branches, from memory, files and `chat_store`."""
        self._attached.forget()
        if (there := self._attached.chat_store) is not None:
            there[0].delete_messages(there[1])

    def search(
        self, query: str, top_k: int = 10, *, since: datetime | None = None, until: datetime | None = None,
        role: Role | None = None,
    ) -> list[FoundMessage]:  # fmt: skip
        """Return the messages of this branch that match best, best first; see `InfiniteMemory.search`."""
        return self._found(self._attached.memory.search(query, top_k, since=since, until=until, role=role))

    async def asearch(
        self, query: str, top_k: int = 10, *, since: datetime | None = None, until: datetime | None = None,
        role: Role | None = None,
    ) -> list[FoundMessage]:  # fmt: skip
        """Do what `search` does without blocking the event loop."""
        memory = AsyncInfiniteMemory(await asyncio.to_thread(lambda: self._attached.memory))
        found = await memory.search(query, top_k, since=since, until=until, role=role)
        return await asyncio.to_thread(self._found, found)

    def _found(self, found: list[ScoredMessage]) -> list[FoundMessage]:
        return [FoundMessage(self._attached.whole(one.message), one.score, one.message.id or "") for one in found]

    @property
    def current_branch(self) -> str | None:
        """The branch that messages are put on; None: none yet, after `checkout` of a message."""
        return self._attached.engine.branch

    def branches(self) -> list[str]:
        """Return the names of all branches, in order of creation."""
        return [branch.name for branch in self._attached.memory.branches()]

    def branch(self, name: str, at: str | int | None = None) -> None:
        """Open a branch and stand on it; what is said from now on is not seen from the others.

        Args:
            name: of the new branch.
            at: how many messages of this branch it begins with, or the last of them by id, or a branch's name; None:
                all of them.

        Raises:
            DuplicateError: the name is taken.
            UnknownReferenceError: there is no such place.
        """
        self._attached.branch(name, at)
        self._mirror()

    def checkout(self, reference: str) -> None:
        """Stand on a branch, or at a message by id; what is put there opens a branch.

        Raises:
            UnknownReferenceError: there is no such place.
        """
        with self._attached.lock:
            self._attached.memory.checkout(reference)
        self._mirror()

    def close(self) -> None:
        """Keep what was indexed and release the store, for all handles; closing twice is fine."""
        self._attached.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
