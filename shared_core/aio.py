"""AsyncInfiniteMemory: the methods of `InfiniteMemory` as coroutines that never block the event loop."""

from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial, wraps
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from shared_core.arguments import SystemPrompt
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.plugins.calls import Steps, arun_steps
from shared_core.runtime.threads import beside, threads_of

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
        return await self._threads.run(partial(method, self._memory), *args, **kwargs)

    return call


def in_steps(
    method: Method[Arguments, Result], steps: Method[Arguments, Steps[Result]]
) -> AsyncMethod[Arguments, Result]:
    """Return a method that may need a model as a coroutine: its steps run in threads, and the model is awaited."""

    @wraps(method)
    async def call(self: "AsyncInfiniteMemory", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        begun = await self._threads.run(partial(steps, self._memory), *args, **kwargs)
        return await arun_steps(begun, self._threads.run)

    return call


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
    close = in_thread(InfiniteMemory.close)

    async def messages(self, *, replaced: bool = False) -> AsyncIterator[Message]:
        """Iterate over the branch, oldest first; see `InfiniteMemory.messages`."""
        messages = iter(await self._threads.run(self._memory.messages, replaced=replaced))
        while page := await self._threads.run(lambda: list(islice(messages, PAGE))):
            for message in page:
                yield message

    async def __aenter__(self) -> "AsyncInfiniteMemory":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
