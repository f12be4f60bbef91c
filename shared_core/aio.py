"""AsyncInfiniteMemory: the methods of `InfiniteMemory` as coroutines that never block the event loop."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import date
from functools import partial
from itertools import islice
from typing import Any, ParamSpec, TypeVar

from shared_core.arguments import SystemPrompt
from shared_core.formats.fields import Role
from shared_core.history.followed import FollowedHistory
from shared_core.history.matcher import Removed
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message, MessageLike
from shared_core.pipeline import Progress
from shared_core.plugins.base import Summarizer
from shared_core.plugins.calls import Steps, adrive
from shared_core.prompt.context import Context
from shared_core.prompt.hits import Hit
from shared_core.recall.scope import RecallScope
from shared_core.records import Branch, SessionInfo, Summary
from shared_core.runtime.threads import beside, threads_of
from shared_core.session.forget import ForgetResult
from shared_core.sharing.files import FileFormat
from shared_core.sharing.importer import ImportResult
from shared_core.sharing.redact import Redact
from shared_core.tree.branches import Diff, ReflogEntry
from shared_core.tree.copies import CherryPickResult, Stash
from shared_core.tree.log import LogEntry
from shared_core.tree.merge import How, MergeResult

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

PAGE = 500
"""Messages read at a time by `messages`."""


class AsyncInfiniteMemory:
    """The methods of a memory as coroutines, with the arguments, results and errors of `InfiniteMemory`.

    `messages` is an async iterator: loop over it with `async for`.

    Reading, writing and ranking run in threads, as many as the store serves at a time (`Store.connections`). All
    memories on a store share them, they end with the store, and the event loop's own threads stay free.
    Embedders and summarizers that are asynchronous themselves are awaited.

    Args:
        memory: the memory to use. `await AsyncInfiniteMemory.open(…)` creates one without blocking the event loop.

    Raises:
        TypeError: `memory` is something else, such as a path.
    """

    def __init__(self, memory: InfiniteMemory) -> None:
        if not isinstance(memory, InfiniteMemory):
            raise TypeError(f"expected an InfiniteMemory; to open one, await AsyncInfiniteMemory.open({memory!r})")
        self._memory = memory
        self._threads = threads_of(memory._store)

    async def _call(
        self, function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Call a function in a thread, and do not block the event loop meanwhile."""
        return await self._threads.run(function, *args, **kwargs)

    async def _drive(self, steps: Steps[Result]) -> Result:
        return await adrive(steps, self._call)

    @classmethod
    async def open(cls, *args: Any, **kwargs: Any) -> "AsyncInfiniteMemory":
        """Open a memory in a thread. The arguments are those of `InfiniteMemory`."""
        return cls(await beside(partial(InfiniteMemory, *args, **kwargs)))

    @property
    def branch(self) -> str | None:
        """The branch that is checked out; None: the head is detached at a message."""
        return self._memory.branch

    @property
    def session_id(self) -> str:
        """The name of the conversation."""
        return self._memory.session_id

    @property
    def user_id(self) -> str | None:
        """The user whom the conversation belongs to; None: no user."""
        return self._memory.user_id

    @property
    def system(self) -> SystemPrompt | None:
        """The system prompt as a setting; see `InfiniteMemory`."""
        return self._memory.system

    @system.setter
    def system(self, system: SystemPrompt | None) -> None:
        self._memory.system = system

    async def add(self, messages: MessageLike | Sequence[MessageLike], *, turn: str | None = None) -> list[Message]:
        """Store messages; see `InfiniteMemory.add`."""
        return await self._call(self._memory.add, messages, turn=turn)

    async def follow(
        self, messages: Sequence[MessageLike], *, after: FollowedHistory | None = None, removed: Removed = "keep",
        since: str | None = None,
    ) -> FollowedHistory:  # fmt: skip
        """Store what is new in a history, and check out its end; see `InfiniteMemory.follow`."""
        return await self._call(self._memory.follow, messages, after=after, removed=removed, since=since)

    async def context(
        self, question: str | MessageLike | None = None, *, system: SystemPrompt | None = None,
        tools: Sequence[Any] | None = None, max_tokens: int | None = None, reserve_tokens: int | None = None,
        include_question: bool = True, as_of: date | str | None = None,
    ) -> Context:  # fmt: skip
        """Return the prompt for a question; see `InfiniteMemory.context`."""
        steps = await self._call(  # the function that returns the system prompt may block
            self._memory.context_steps, question, system=system, tools=tools, max_tokens=max_tokens,
            reserve_tokens=reserve_tokens, include_question=include_question, as_of=as_of,
        )  # fmt: skip
        return await self._drive(steps)

    async def count(self, message: MessageLike) -> int:
        """Return the tokens a message takes when it is sent; see `InfiniteMemory.count`."""
        return await self._call(self._memory.count, message)

    async def search(
        self, query: str, top_k: int = 10, *, since: date | str | None = None, until: date | str | None = None,
        role: Role | Sequence[Role] | None = None, scope: RecallScope | None = None, repeats: int | None = None,
        in_conversation: bool = False, as_of: date | str | None = None,
    ) -> list[Hit]:  # fmt: skip
        """Return the messages that match best; see `InfiniteMemory.search`."""
        steps = await self._call(  # finding out where the conversation stood then reads from the store
            self._memory.search_steps, query, top_k, since=since, until=until, role=role, scope=scope, repeats=repeats,
            in_conversation=in_conversation, as_of=as_of,
        )  # fmt: skip
        return await self._drive(steps)

    async def index(self, progress: Progress | None = None) -> None:
        """Embed all messages that have no vector yet; see `InfiniteMemory.index`. `progress` is called from threads."""
        await self._drive(self._memory._index_steps(progress))

    async def reindex(self, progress: Progress | None = None) -> None:
        """Embed the whole session again; see `InfiniteMemory.reindex`."""
        await self._drive(self._memory._index_steps(progress, anew=True))

    async def summary(self) -> Summary | None:
        """Return the branch's summary; see `InfiniteMemory.summary`."""
        return await self._call(self._memory.summary)

    async def summarize(self) -> Summary | None:
        """Sum up everything that has left the window; see `InfiniteMemory.summarize`."""
        return await self._drive(self._memory._summary_steps())

    async def get(self, id: str) -> Message:
        """Return one message; see `InfiniteMemory.get`."""
        return await self._call(self._memory.get, id)

    async def messages(self, *, replaced: bool = False) -> AsyncIterator[Message]:
        """Iterate over the branch, oldest first; see `InfiniteMemory.messages`."""
        messages = iter(await self._call(self._memory.messages, replaced=replaced))
        while page := await self._call(lambda: list(islice(messages, PAGE))):
            for message in page:
                yield message

    async def newest(self, limit: int) -> list[Message]:
        """Return the newest messages; see `InfiniteMemory.newest`."""
        return await self._call(self._memory.newest, limit)

    async def stats(self) -> dict[str, Any]:
        """Return what the session holds; see `InfiniteMemory.stats`."""
        return await self._call(self._memory.stats)

    async def sessions(self, limit: int | None = None, *, titled: str = "") -> list[SessionInfo]:
        """Return the sessions of the user; see `InfiniteMemory.sessions`."""
        return await self._call(self._memory.sessions, limit, titled=titled)

    async def rename_session(self, session_id: str) -> None:
        """Give this conversation another name; see `InfiniteMemory.rename_session`."""
        await self._call(self._memory.rename_session, session_id)

    async def set_title(self, title: str | None) -> None:
        """Give this conversation a title; see `InfiniteMemory.set_title`."""
        await self._call(self._memory.set_title, title)

    async def is_renamed(self) -> bool:
        """Return whether another object has renamed this conversation; see `InfiniteMemory.is_renamed`."""
        return await self._call(self._memory.is_renamed)

    async def branches(self) -> list[Branch]:
        """Return all branches; see `InfiniteMemory.branches`."""
        return await self._call(self._memory.branches)

    async def fork(self, name: str, at: str | None = None) -> None:
        """Open a branch; see `InfiniteMemory.fork`."""
        await self._call(self._memory.fork, name, at)

    async def checkout(self, reference: str) -> None:
        """Check out a branch or a position; see `InfiniteMemory.checkout`."""
        await self._call(self._memory.checkout, reference)

    async def rename(self, name: str, to: str) -> None:
        """Rename a branch; see `InfiniteMemory.rename`."""
        await self._call(self._memory.rename, name, to)

    async def delete_branch(self, name: str) -> None:
        """Delete a branch; see `InfiniteMemory.delete_branch`."""
        await self._call(self._memory.delete_branch, name)

    async def tag(self, name: str, at: str | None = None) -> None:
        """Tag a position; see `InfiniteMemory.tag`."""
        await self._call(self._memory.tag, name, at)

    async def tags(self) -> list[Branch]:
        """Return all tags; see `InfiniteMemory.tags`."""
        return await self._call(self._memory.tags)

    async def delete_tag(self, name: str) -> None:
        """Delete a tag; see `InfiniteMemory.delete_tag`."""
        await self._call(self._memory.delete_tag, name)

    async def reset(self, to: str) -> None:
        """Move the branch to another position; see `InfiniteMemory.reset`."""
        await self._call(self._memory.reset, to)

    async def make_main(self) -> None:
        """Let the line that is checked out be `main`; see `InfiniteMemory.make_main`."""
        await self._call(self._memory.make_main)

    async def set_aside(self, after: str | None = None) -> str:
        """Let the branch end after a message; see `InfiniteMemory.set_aside`."""
        return await self._call(self._memory.set_aside, after)

    async def undo(self) -> ReflogEntry:
        """Take back the last verb that moved the branch; see `InfiniteMemory.undo`."""
        return await self._call(self._memory.undo)

    async def reflog(self, branch: str | None = None, limit: int = 100) -> list[ReflogEntry]:
        """Return the moves of branches; see `InfiniteMemory.reflog`."""
        return await self._call(self._memory.reflog, branch, limit)

    async def log(self, limit: int = 50) -> list[LogEntry]:
        """Return the newest messages as nodes; see `InfiniteMemory.log`."""
        return await self._call(self._memory.log, limit)

    async def diff(self, a: str, b: str | None = None) -> Diff:
        """Return the messages that two positions do not share; see `InfiniteMemory.diff`."""
        return await self._call(self._memory.diff, a, b)

    async def newest_at(self, reference: str) -> Message | None:
        """Return the newest message at a position; see `InfiniteMemory.newest_at`."""
        return await self._call(self._memory.newest_at, reference)

    async def merge(
        self, source: str, how: How = "auto", *, prompt: str | None = None, summarizer: Summarizer | None = None
    ) -> MergeResult:
        """Merge another branch into this one; see `InfiniteMemory.merge`. An asynchronous summarizer is awaited."""
        return await self._drive(self._memory._merge_steps(source, how, prompt=prompt, summarizer=summarizer))

    async def sources(self, id: str) -> list[str]:
        """Return the ids of the messages that a message was made from; see `InfiniteMemory.sources`."""
        return await self._call(self._memory.sources, id)

    async def cherry_pick(self, ids: str | Sequence[str]) -> CherryPickResult:
        """Copy messages to the branch; see `InfiniteMemory.cherry_pick`."""
        return await self._call(self._memory.cherry_pick, ids)

    async def rebase(self, onto: str, since: str | None = None) -> CherryPickResult:
        """Rebase the branch onto another position; see `InfiniteMemory.rebase`."""
        return await self._call(self._memory.rebase, onto, since)

    async def stash(self, since: str | None = None, note: str = "") -> Stash | None:
        """Put the end of the branch aside; see `InfiniteMemory.stash`."""
        return await self._call(self._memory.stash, since, note)

    async def stashes(self) -> list[Stash]:
        """Return the stashes; see `InfiniteMemory.stashes`."""
        return await self._call(self._memory.stashes)

    async def stash_apply(self, number: int = 0) -> CherryPickResult:
        """Add copies of stashed messages; see `InfiniteMemory.stash_apply`."""
        return await self._call(self._memory.stash_apply, number)

    async def stash_pop(self, number: int = 0) -> CherryPickResult:
        """Add copies of stashed messages and drop the stash; see `InfiniteMemory.stash_pop`."""
        return await self._call(self._memory.stash_pop, number)

    async def stash_drop(self, number: int = 0) -> None:
        """Drop a stash; see `InfiniteMemory.stash_drop`."""
        await self._call(self._memory.stash_drop, number)

    async def export(
        self, path: str | os.PathLike[str], *, format: FileFormat | None = None, branch: str | None = None,
        vectors: bool = False, redact: Redact | Sequence[Redact] = (), progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Write this conversation to a file; see `InfiniteMemory.export`. Rules and `progress` run in a thread."""
        return await self._call(
            self._memory.export, path, format=format, branch=branch, vectors=vectors, redact=redact, progress=progress
        )

    async def backup(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> None:
        """Write a copy of the whole store to a new file; see `InfiniteMemory.backup`. It runs in a thread."""
        await self._call(self._memory.backup, path, progress=progress)

    async def import_file(
        self, path: str | os.PathLike[str], *, session: str | None = None, format: str | None = None,
        progress: Progress | None = None,
    ) -> ImportResult:  # fmt: skip
        """Import a conversation from a file into this one; see `InfiniteMemory.import_file`."""
        return await self._call(self._memory.import_file, path, session=session, format=format, progress=progress)

    async def close_turn(self) -> None:
        """Let the next reply join the newest turn; see `InfiniteMemory.close_turn`."""
        await self._call(self._memory.close_turn)

    async def forget(
        self, *, ids: Sequence[str] | None = None, before: date | str | None = None, session: bool = False,
        user: bool = False, dry_run: bool = False,
    ) -> ForgetResult:  # fmt: skip
        """Erase messages everywhere; see `InfiniteMemory.forget`."""
        return await self._call(
            self._memory.forget, ids=ids, before=before, session=session, user=user, dry_run=dry_run
        )

    async def scrub(self) -> ForgetResult:
        """Remove erased bytes from the files; see `InfiniteMemory.scrub`."""
        return await self._call(self._memory.scrub)

    async def close(self) -> None:
        """Save the index and release the store; see `InfiniteMemory.close`."""
        await self._call(self._memory.close)

    async def __aenter__(self) -> "AsyncInfiniteMemory":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
