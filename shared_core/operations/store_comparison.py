"""What differs between two stores."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice, zip_longest

from shared_core.records import ALL, Position
from shared_core.sharing.transfer import forgotten_of, pages, read_tree, records_of
from shared_core.store import Store


def differences(first: Store, second: Store, *, users: Collection[str | None] | None = None) -> Iterator[str]:
    """Yield in words what one store holds and the other does not, or holds otherwise: of each kind, the first.

    Sessions, messages, trees, names, forgotten ids, summaries and vectors are compared. Each store has indexes, numbers
    of sessions and refs, and epochs of its own.

    Args:
        first: a store.
        second: another store.
        users: whose sessions to compare; None stands for the user of nobody's sessions. By default, everybody's.
    """
    found = [store.sessions(*users) if users is not None else store.sessions() for store in (first, second)]
    there = {key[1:]: key for key in found[1]}
    for own in found[0]:
        other = there.pop(own[1:], None)
        whose = "" if own.user_id is None else f"user {own.user_id!r}, "
        if other is None:
            yield f"{whose}session {own.session_id!r}: only in the first"
        else:
            for (what, one), (_, two) in zip(_parts(first, own.key), _parts(second, other.key), strict=True):
                numbers = (number for number, pair in enumerate(zip_longest(one, two), 1) if pair[0] != pair[1])
                yield from (f"{whose}session {own.session_id!r}: {what} from number {n}" for n in islice(numbers, 1))
    yield from (f"session {key.session_id!r} of user {key.user_id!r}: only in the second" for key in there.values())


def _parts(store: Store, session: int) -> Iterator[tuple[str, Iterable[object]]]:
    """Yield all that a session holds, kind by kind, each in an order that is the same in every store."""
    tree = read_tree(store, session)
    segments, spaces = sorted(tree.segments.items()), store.spaces(session)
    yield "messages", chain.from_iterable(records_of(store, session))
    yield "the last number", [tree.state.last_seq]
    yield "segments", segments
    yield "branches", tree.branches.items()
    yield "tags, stashes, moves or heads", tree.names[1]
    yield "what messages sum up", (store.covers(session, numbers) for numbers in pages(sorted(tree.segments)))
    yield "forgotten ids", chain.from_iterable(forgotten_of(store, session))
    yield "summaries", (store.summaries(session, Position(number, one.tip), ALL) for number, one in segments)
    yield "vector spaces", spaces
    yield "vectors", ((space, row) for space in spaces for row in store.vectors(session, space))
