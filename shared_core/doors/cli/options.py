"""The options that commands share, and the session that they name.

The engine is imported when a session is opened, so that help costs next to nothing.
"""

import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Self

import typer

from shared_core.display import SHORT_ID, printable, short_id
from shared_core.errors import StoreError, StoreUnavailableError, UnknownReferenceError

if TYPE_CHECKING:
    from shared_core.memory import InfiniteMemory

DEFAULT_SESSION = "default"
"""The session of a command that names none."""

DEFAULT_STORE = "chat.db"

STORE = "INFINITE_MEMORY_STORE"
"""The variable with the store of commands that name none."""

SESSIONS_NAMED = 10
"""How many sessions are named where the one that was asked for does not exist."""


# Output


def say(text: str) -> None:
    """Write one line to stderr, which leaves stdout to the answer."""
    typer.echo(f"infinite-memory: {printable(' '.join(text.split()))}", err=True)


def write_json(data: Any) -> None:
    """Write plain data to stdout."""
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2))


# Options


def _time(text: str) -> datetime:
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time: use ISO 8601, for example 2025-03-01T10:00") from None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _role(name: str) -> str:
    from shared_core.formats.fields import role_named

    try:
        return role_named(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def role_option(help: str) -> Any:
    """Return an option that takes a role, by the name that any program gives it."""
    return typer.Option(parser=_role, metavar="ROLE", help=f"{help} Names such as human, ai and agent are known.")


def time_option(help: str) -> Any:
    """Return an option that takes a time."""
    return typer.Option(parser=_time, metavar="TIME", help=f"{help} Use ISO 8601; a time without a zone is UTC.")


StorePath = Annotated[
    str,
    typer.Option(
        "--store", metavar="PATH", envvar=STORE,
        help="The path of the database, or postgresql://user@host/database.",
    ),
]  # fmt: skip
BranchName = Annotated[
    str | None,
    typer.Option(
        "--branch", metavar="NAME",
        help="The branch to work on, instead of the one that is checked out.",
    ),
]  # fmt: skip
EmbedderName = Annotated[
    str | None,
    typer.Option(
        "--embedder", metavar="NAME", help="The embedder to use instead of the store's current one; words: none."
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of", metavar="TIME|ID",
        help="Leave out what was said later than this time (ISO 8601, UTC), or than the message with this ID.",
    ),
]  # fmt: skip
Scope = Literal["session", "user"]

ScopeName = Annotated[
    Scope | None,
    typer.Option(
        "--scope",
        help="Search this conversation, or all of the user's. By default all, if --user is given and no --session.",
    ),
]  # fmt: skip
MaxTokens = Annotated[
    int, typer.Option(metavar="N", min=1, help="The model's context limit, in tokens: prompt and reply.")
]
ReserveTokens = Annotated[
    int, typer.Option(metavar="N", min=0, help="The tokens of the limit that are kept free for the reply.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The session that a command works on.

    Attributes:
        store: path or URL of the database.
        session: ID of the conversation. None: none was named.
        user: ID of the conversation's owner. None: it has no owner.
    """

    store: StorePath = DEFAULT_STORE
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="ID",
            help=f"The ID of the conversation; {DEFAULT_SESSION} if left out.",
        ),
    ] = None  # fmt: skip
    user: Annotated[
        str | None, typer.Option("--user", metavar="ID", help="The ID of the user the conversation belongs to.")
    ] = None

    @property
    def session_id(self) -> str:
        """The session that the command works on."""
        return self.session if self.session is not None else DEFAULT_SESSION

    @contextmanager
    def create(self, **settings: Any) -> "Iterator[InfiniteMemory]":
        """Open the session on the branch that is checked out, with these arguments of `InfiniteMemory`.

        The store and the session are created when a message is stored.
        """
        with self._memory(settings) as memory:
            memory.checkout(self.target())
            yield memory

    @contextmanager
    def read(self) -> "Iterator[InfiniteMemory]":
        """Open the session as `open` does, but count no tokens: the table for that is slow to load."""
        with self.open(token_counter="characters/4") as memory:
            yield memory

    def target(self) -> str:
        """Return the branch that the command works on: the one that is checked out."""
        return read_head(self.store, self.user, self.session_id)

    def check_out(self, branch: str) -> None:
        """Let later commands work on a branch."""
        write_head(self.store, self.user, self.session_id, branch)

    @contextmanager
    def open(self, **settings: Any) -> "Iterator[InfiniteMemory]":
        """Open the session in a store that exists, with these arguments of `InfiniteMemory`.

        The branch that is checked out is that of the last `checkout`. If there is no such session, name those that
        there are and exit with code 1.

        Raises:
            StoreError: there is no such store. It is not created.
        """
        with self.open_user(**settings) as memory:
            if is_empty(memory):
                self.exit_without_session([info.session_id for info in memory.sessions(limit=SESSIONS_NAMED + 1)])
            memory.checkout(self.target())
            yield memory

    @contextmanager
    def open_user(self, **settings: Any) -> "Iterator[InfiniteMemory]":
        """Open a store that exists for what concerns all sessions of the user; the one that is named need not exist.

        Raises:
            StoreError: there is no such store. It is not created.
        """
        self.require_store()
        with self._memory(settings) as memory:
            yield memory

    def _memory(self, settings: Mapping[str, Any]) -> "InfiniteMemory":
        from shared_core.memory import InfiniteMemory
        from shared_core.tokens import TokenFallbackWarning

        with warnings.catch_warnings():
            if "max_tokens" not in settings:  # only a prompt is measured in tokens
                warnings.simplefilter("ignore", TokenFallbackWarning)
            return InfiniteMemory(self.store, session_id=self.session_id, user_id=self.user, **settings)

    def with_whole_id(self) -> Self:
        """Return these options with the session whose beginning, as a terminal shows it, is given; else themselves."""
        if self.session is None or not SHORT_ID.fullmatch(self.session):
            return self
        from shared_core.stores import open_store, store_exists

        if not store_exists(self.store):
            return self
        with closing(open_store(self.store).for_user(self.user)) as store:
            there = [key.session_id for key in store.sessions(self.user)]
        fitting = [name for name in there if short_id(name) == self.session]
        return replace(self, session=fitting[0]) if len(fitting) == 1 else self

    def in_scope(self, scope: Scope | None) -> tuple[Self, Scope]:
        """Return what is searched, `"session"` or `"user"`, and options that name a session to search from."""
        if scope == "session" or (scope is None and (self.session is not None or self.user is None)):
            return self, "session"
        with self.open_user() as memory:
            names = [info.session_id for info in memory.sessions()]
        if not names:
            self.exit_without_session(names)
        return replace(self, session=self.session_id if self.session_id in names else names[0]), "user"

    @property
    def shown_store(self) -> str:
        """The store as it may be written: without a password."""
        from shared_core.stores import without_password

        return without_password(self.store)

    def require_store(self) -> None:
        """Raise StoreError if there is no such store. It is not created."""
        from shared_core.stores import store_exists

        if not store_exists(self.store):
            there = "create one with infinite-memory chat, add or import, or name another with --store"
            raise StoreError(f"no store at {self.shown_store!r}: {there}")

    def of_user(self) -> str:
        """Return whose conversations are meant, in words; empty for those of nobody."""
        return "" if self.user is None else f" of user {self.user!r}"

    def exit_without_session(self, there: Sequence[str]) -> NoReturn:
        """Say that there is no such session but these, newest first, and exit with code 1."""
        if not there:
            known = "chat, add and import begin one, and infinite-memory sessions --all-users lists those of others"
            say(f"no session{self.of_user() or f' {self.session_id!r}'} in {self.shown_store!r}: {known}")
            raise typer.Exit(1)
        named = ", ".join(map(repr, there[:SESSIONS_NAMED]))
        if len(there) > SESSIONS_NAMED:
            named += " and more, see infinite-memory sessions"
        known = f"there {'is' if len(there) == 1 else 'are'} {named}"
        say(f"no session {self.session_id!r}{self.of_user()} in {self.shown_store!r}; {known}")
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions(SessionOptions):
    """The session that a command works on, and how it answers.

    Attributes:
        as_json: answer as JSON instead of text.
    """

    as_json: Annotated[bool, typer.Option("--json", help="Write the answer as JSON.")] = False

    def answer(self, data: Any, lines: Iterable[str], none: str = "") -> None:
        """Write plain data as JSON, or these lines, to stdout; `none`: what is noted where there are none."""
        if self.as_json:
            write_json(data)
            return
        empty = True
        for line in lines:
            typer.echo(printable(line))
            empty = False
        if empty and none:
            say(f"note: {none}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOptions(CommonOptions):
    """The session and the branch that a command works on, and how it answers.

    Attributes:
        branch: the branch. None: the one that is checked out.
    """

    branch: BranchName = None

    def target(self) -> str:
        """Return the branch that the command works on."""
        return self.branch if self.branch is not None else CommonOptions.target(self)

    def in_scope(self, scope: Scope | None) -> tuple[Self, Scope]:
        """Return what is searched, as `SessionOptions.in_scope` does; on a branch, nothing but the branch."""
        if self.branch is None:
            return CommonOptions.in_scope(self, scope)
        if scope == "user":
            raise typer.BadParameter("--scope user searches main branches: leave out --branch")
        return self, "session"


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options it shares with others, as one object.

    The first parameter of the command is annotated with `SessionOptions` or a class that extends it. Each field becomes
    an option of the command.
    """
    first, *own = inspect.signature(command).parameters.values()
    shared = inspect.signature(first.annotation).parameters

    @wraps(command)
    def run(**values: Any) -> None:
        options = first.annotation(**{name: values.pop(name) for name in shared})
        command(options.with_whole_id(), **values)

    parameters = [*own, *shared.values()]
    described: Any = run  # typer reads the parameters of a command from these two attributes
    described.__signature__ = inspect.Signature(parameters)
    described.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


# The branch that is checked out, which the store keeps from one command to the next


def read_head(store: str, user_id: str | None, session_id: str) -> str:
    """Return the branch that is checked out in a session: `main`, unless another was checked out and still exists."""
    from shared_core.records import MAIN
    from shared_core.stores import open_store

    with closing(open_store(store).for_user(user_id)) as opened:
        session = opened.session(user_id, session_id)
        if session is None:
            return MAIN
        heads = [ref.name for ref in opened.refs(session, "head", limit=1)]
        return next((branch.name for branch in opened.branches(session) if [branch.name] == heads), MAIN)


def write_head(store: str, user_id: str | None, session_id: str, branch: str) -> None:
    """Check a branch of a session out for the commands to come.

    Raises:
        UnknownReferenceError: there is no such branch.
    """
    from shared_core.records import MAIN, Change, Drop, Put
    from shared_core.stores import open_store

    with closing(open_store(store).for_user(user_id)) as opened:
        session = opened.create_session(user_id, session_id)
        ends = {one.name: one.head for one in opened.branches(session)}
        if branch not in ends:
            raise UnknownReferenceError(f"there is no branch {branch!r} any more")
        changes: list[Change] = [Drop(ref.number) for ref in opened.refs(session, "head")]
        opened.change(session, [*changes, Put("head", branch, ends[branch])] if branch != MAIN else changes)


def is_empty(memory: "InfiniteMemory") -> bool:
    """Return whether nothing is stored in the session; a message that is damaged is there."""
    try:
        return not memory.newest(1) and not memory.log(1)
    except StoreUnavailableError:
        raise
    except StoreError:
        return False
