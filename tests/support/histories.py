"""Made-up conversations, and a store that counts what is read from it."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

from shared_core import InfiniteMemory, Message
from shared_core.queries import After, Back, Ids, KnownVectors, SnapshotOf, Vectors
from shared_core.records import ALL, Snapshot, VectorRows
from shared_core.store import Store
from shared_core.stores import SQLiteStore
from shared_core.stores.sql_rows import Result
from shared_core.stores.sqlite.sqlite_rows import SQLiteRows

__all__ = ["NOON", "CountingStore", "history", "ids", "stored_ids", "texts", "with_ids"]

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def with_ids(memory: InfiniteMemory, new_id: Callable[[], str]) -> InfiniteMemory:
    """Return a memory that gives these ids to messages that have none."""
    writer = memory._checkout.writer
    writer.stamps = replace(writer.stamps, id=new_id)
    return memory


def history(count: int, start: int = 0) -> list[Message]:
    """Return exchanges of equal size, a message a minute; each says its own number twice, so that it can be found."""
    return [
        Message(
            role="assistant" if number % 2 else "user",
            content=f"item{number} concerns {NUMBERS[number % 13]} gardens, see item{number}",
            id=f"m{number}",
            created_at=NOON + timedelta(minutes=number),
        )
        for number in range(start, start + count)
    ]


def ids(messages: Iterable[Message]) -> list[str | None]:
    """Return the messages' ids."""
    return [message.id for message in messages]


def stored_ids(store: Store, session: int) -> list[str | None]:
    """Return the ids of all messages of a session, by their numbers."""
    return [record.message.id for record in store.find(session, After(0, ALL))]


def texts(messages: Iterable[Message]) -> list[str]:
    """Return what the messages say."""
    return [message.content for message in messages]


class CountingStore(SQLiteStore):
    """Counts its calls, and the rows that they return, by verb."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.calls: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()
        super().__init__(*arguments, **named)

    def reset(self) -> None:
        """Begin to count anew."""
        self.calls.clear()
        self.rows.clear()

    def _read(self, ask: Callable[[SQLiteRows], Result]) -> Result:
        def noted(rows: SQLiteRows) -> Result:
            own = rows.ask

            def counted(session: int, query: Any) -> Any:
                answer = own(session, query)
                self.note(_name(query), answer)
                return answer

            rows.ask = counted  # type: ignore[method-assign]
            return ask(rows)

        return super()._read(noted)

    def note(self, name: str, answer: Any) -> None:
        """Count a call, and the rows of its answer."""
        self.calls[name] += 1
        self.rows[name] += len(answer) if isinstance(answer, list | dict) and name != "segments" else 0


_NAMES = {Back: "newest", Ids: "get", KnownVectors: "vectors", SnapshotOf: "snapshot"}


def _name(query: Any) -> str:
    if isinstance(query, Vectors) and query.positions is None:
        return "all_vectors"
    return _NAMES.get(type(query), type(query).__name__.lower())


def _counted(verb: str) -> Callable[..., Any]:
    original: Callable[..., Any] = getattr(SQLiteStore, verb)

    @wraps(original)
    def call(store: CountingStore, *arguments: Any, **named: Any) -> Any:
        result = original(store, *arguments, **named)
        name = verb
        if verb == "keep":
            name = {VectorRows: "put_vectors", Snapshot: "put_snapshot"}.get(type(arguments[1]), "put_summary")
        store.note(name, result)
        return result

    return call


for _verb in ("append", "create_session", "keep", "keep_vectors"):
    setattr(CountingStore, _verb, _counted(_verb))
