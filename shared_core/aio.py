"""AsyncInfiniteMemory: the methods of `InfiniteMemory` as coroutines that never block the event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from shared_core.arguments import SystemPrompt, check_names, missing_method
from shared_core.errors import StoreError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.plugins.calls import Steps, arun_steps
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.runtime.threads import StoreThreads, beside, threads_of
from shared_core.store import Store

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Method: TypeAlias = Callable[Concatenate[InfiniteMemory, Arguments], Result]
AsyncMethod: TypeAlias = Callable[Concatenate["AsyncInfiniteMemory", Arguments], Coroutine[Any, Any, Result]]

PAGE = 500
"""Messages read at a time by `messages`."""


def in_thread(method: Method[Arguments, Result]) -> AsyncMethod[Arguments, Result]:
    """Return a method of the memory as a coroutine that runs it in a thread."""

    @wraps(method)
    async def call(self: "AsyncInfiniteMemory", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        memory, threads = await self._opened()
        return await threads.run(partial(method, memory), *args, **kwargs)

    return call


def in_steps(
    method: Method[Arguments, Result], steps: Method[Arguments, Steps[Result]]
) -> AsyncMethod[Arguments, Result]:
    """Return a method that may need a model as a coroutine: its steps run in threads, and the model is awaited."""

    @wraps(method)
    async def call(self: "AsyncInfiniteMemory", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        check_names(method, args, kwargs)
        memory, threads = await self._opened()
        begun = await threads.run(partial(steps, memory), *args, **kwargs)
        return await arun_steps(begun, threads.run)

    return call


class AsyncInfiniteMemory:
    """The methods of a memory as coroutines, with the arguments, results and errors of `InfiniteMemory`.

    `async with AsyncInfiniteMemory("chat.db") as memory:` opens it without blocking the event loop, and closes it.
    Without `async with`, the first method that is awaited opens it. `messages` is an async iterator:
    `async for message in memory.messages()`.

    Reading, writing and ranking run in threads, as many as the store serves at a time (`Store.connections`). All
    memories on a store share them, they end with the store, and the event loop's own threads stay free.
    Embedders and summarizers that are asynchronous themselves are awaited.

    Args:
        store: the store, as for `InfiniteMemory`; or an `InfiniteMemory` that is open already.
        settings: the other arguments of `InfiniteMemory`. What is wrong with them is said when the memory is opened.

    Raises:
        TypeError: settings are passed beside an `InfiniteMemory`, which has its own.
    """

    def __init__(self, store: InfiniteMemory | str | Path | Store | None = None, **settings: Any) -> None:
        self._memory: InfiniteMemory | None = None
        if not isinstance(store, InfiniteMemory):
            self._open = partial(InfiniteMemory, store, **settings)
        elif settings:
            raise TypeError(f"{', '.join(settings)}: pass settings to the InfiniteMemory that you wrap")
        else:
            self._memory = store
        self._lock = fork_safe_lock(Depth.CONVERSATION)

    async def _opened(self) -> tuple[InfiniteMemory, StoreThreads]:
        """Return the memory and the threads of its store; the first caller opens it."""
        if self._memory is None:
            await beside(self._open_once)
        return self._now, threads_of(self._now._store)

    def _open_once(self) -> None:
        with self._lock:
            self._memory = self._memory or self._open()

    @property
    def _now(self) -> InfiniteMemory:
        if self._memory is None:
            raise StoreError("the memory is not open yet; use it inside of `async with`, or await a method first")
        return self._memory

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing_method(self, name)

        def __enter__(self):
            raise TypeError("AsyncInfiniteMemory opens in an event loop: use it with `async with`")

        def __exit__(self, *exc_info):
            pass

    def __repr__(self) -> str:
        return f"AsyncInfiniteMemory({self._memory or 'not open yet'!r})"

    @property
    def branch(self) -> str | None:
        """The branch that is checked out; None: the head is detached at a message."""
        return self._now.branch

    @property
    def session_id(self) -> str:
        """The name of the conversation."""
        return self._now.session_id

    @property
    def user_id(self) -> str | None:
        """The user whom the conversation belongs to; None: no user."""
        return self._now.user_id

    @property
    def system(self) -> SystemPrompt | None:
        """The system prompt as a setting; see `InfiniteMemory`."""
        return self._now.system

    @system.setter
    def system(self, system: SystemPrompt | None) -> None:
        self._now.system = system

    add = in_thread(InfiniteMemory.add)
    follow = in_thread(InfiniteMemory.follow)
    context = in_steps(InfiniteMemory.context, InfiniteMemory._context_steps)
    search = in_steps(InfiniteMemory.search, InfiniteMemory._search_steps)
    index = in_steps(InfiniteMemory.index, InfiniteMemory._index_steps)
    summary = in_thread(InfiniteMemory.summary)
    summarize = in_steps(InfiniteMemory.summarize, InfiniteMemory._summary_steps)
    get = in_thread(InfiniteMemory.get)
    newest = in_thread(InfiniteMemory.newest)
    stats = in_thread(InfiniteMemory.stats)
    sessions = in_thread(InfiniteMemory.sessions)
    rename_session = in_thread(InfiniteMemory.rename_session)
    set_title = in_thread(InfiniteMemory.set_title)
    branches = in_thread(InfiniteMemory.branches)
    fork = in_thread(InfiniteMemory.fork)
    checkout = in_thread(InfiniteMemory.checkout)
    rename_branch = in_thread(InfiniteMemory.rename_branch)
    delete_branch = in_thread(InfiniteMemory.delete_branch)
    tag = in_thread(InfiniteMemory.tag)
    tags = in_thread(InfiniteMemory.tags)
    delete_tag = in_thread(InfiniteMemory.delete_tag)
    reset = in_thread(InfiniteMemory.reset)
    make_main = in_thread(InfiniteMemory.make_main)
    rewind = in_thread(InfiniteMemory.rewind)
    undo = in_thread(InfiniteMemory.undo)
    reflog = in_thread(InfiniteMemory.reflog)
    log = in_thread(InfiniteMemory.log)
    diff = in_thread(InfiniteMemory.diff)
    merge = in_steps(InfiniteMemory.merge, InfiniteMemory._merge_steps)
    sources = in_thread(InfiniteMemory.sources)
    cherry_pick = in_thread(InfiniteMemory.cherry_pick)
    rebase = in_thread(InfiniteMemory.rebase)
    stash = in_thread(InfiniteMemory.stash)
    stashes = in_thread(InfiniteMemory.stashes)
    stash_pop = in_thread(InfiniteMemory.stash_pop)
    stash_drop = in_thread(InfiniteMemory.stash_drop)
    export = in_thread(InfiniteMemory.export)
    backup = in_thread(InfiniteMemory.backup)
    import_file = in_thread(InfiniteMemory.import_file)
    forget = in_thread(InfiniteMemory.forget)
    scrub = in_thread(InfiniteMemory.scrub)

    async def messages(self, *, at: str | None = None, replaced: bool = False) -> AsyncIterator[Message]:
        """Iterate over the branch, oldest first; see `InfiniteMemory.messages`."""
        memory, threads = await self._opened()
        messages = iter(await threads.run(memory.messages, at=at, replaced=replaced))
        while page := await threads.run(lambda: list(islice(messages, PAGE))):
            for message in page:
                yield message

    async def close(self) -> None:
        """Save the index and release the store. Closing twice is allowed."""
        if self._memory is not None:
            _, threads = await self._opened()
            await threads.run(self._memory.close)

    async def __aenter__(self) -> "AsyncInfiniteMemory":
        opening = asyncio.ensure_future(self._opened())
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:  # no block is entered that would close it, and its thread goes on
            await asyncio.gather(opening, return_exceptions=True)  # nobody waits for its error
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
