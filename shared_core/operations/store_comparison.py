"""What differs between two stores, row by row."""

from collections.abc import Collection, Iterator
from itertools import zip_longest

from shared_core.records import Position, SessionKey
from shared_core.sharing.transfer import Tree, forgotten_of, pages, read_tree, records_of
from shared_core.store import ALL, Store


def differences(first: Store, second: Store, *, users: Collection[str | None] | None = None) -> Iterator[str]:
    """Yield in words what one store holds and the other does not, or holds otherwise, reading both by pages.

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
            yield from (f"{whose}session {own.session_id!r}: {one}" for one in _Pair(first, second, own, other).all())
    yield from (f"session {key.session_id!r} of user {key.user_id!r}: only in the second" for key in there.values())


class _Pair:
    """The same session in two stores."""

    def __init__(self, first: Store, second: Store, own: SessionKey, other: SessionKey) -> None:
        self._first, self._second = first, second
        self._own, self._other = own.key, other.key

    def all(self) -> Iterator[str]:
        """Yield all differences."""
        trees = read_tree(self._first, self._own), read_tree(self._second, self._other)
        yield from self._messages()
        yield from _trees(*trees)
        yield from self._covers(trees[0])
        yield from self._forgotten()
        yield from self._summaries(trees[0])
        yield from self._vectors()

    def _messages(self) -> Iterator[str]:
        sides = records_of(self._first, self._own), records_of(self._second, self._other)
        rows = ((record for page in side for record in page) for side in sides)
        for one, two in zip_longest(*rows):
            if one != two:
                which = one or two
                yield f"message {which.message.id!r}, number {which.seq}"
                return  # the messages after it may all be shifted by one

    def _covers(self, tree: Tree) -> Iterator[str]:
        for numbers in pages(tree.segments):
            if self._first.covers(self._own, numbers) != self._second.covers(self._other, numbers):
                yield f"what messages in segments {numbers[0]} to {numbers[-1]} sum up"

    def _forgotten(self) -> Iterator[str]:
        counts = [store.stats(key)["forgotten"] for store, key in self._sides]
        if counts[0] != counts[1]:
            yield f"{counts[0]} and {counts[1]} forgotten messages"
        for ids in forgotten_of(self._first, self._own):
            yield from (f"forgotten id {id_!r}" for id_ in set(ids) - self._second.are_forgotten(self._other, ids))

    @property
    def _sides(self) -> tuple[tuple[Store, int], tuple[Store, int]]:
        return (self._first, self._own), (self._second, self._other)

    def _summaries(self, tree: Tree) -> Iterator[str]:
        for number, segment in tree.segments.items():
            end = Position(number, segment.tip)
            one, two = (store.summaries(key, end, ALL) for store, key in self._sides)
            if one != two:
                yield f"{len(one)} and {len(two)} summaries in segment {number}, or other ones"

    def _vectors(self) -> Iterator[str]:
        spaces = [store.spaces(key) for store, key in self._sides]
        if spaces[0] != spaces[1]:
            yield f"vector spaces {spaces[0]} and {spaces[1]}"
        for space in spaces[0]:
            rows = (store.vectors(key, space) for store, key in self._sides)
            for one, two in zip_longest(*rows):
                if one != two:
                    yield f"the vector of {tuple((one or two)[0])} in {space!r}"
                    break


def _trees(one: Tree, two: Tree) -> Iterator[str]:
    if one.state.last_seq != two.state.last_seq:
        yield f"last number {one.state.last_seq} and {two.state.last_seq}"
    for number in sorted(one.segments.keys() | two.segments.keys()):
        if one.segments.get(number) != two.segments.get(number):
            yield f"segment {number}"
    if list(one.branches.items()) != list(two.branches.items()):
        yield f"branches {dict(one.branches)} and {dict(two.branches)}"
    if one.refs != two.refs:
        yield "tags, stashes, moves or heads"
