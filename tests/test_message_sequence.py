"""`messages()` is a sequence like a list, whatever the branch holds, and reads no more than is asked for."""

from collections.abc import Sequence
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message, SQLiteStore
from shared_core.errors import UnknownReferenceError
from shared_core.records import Position, Record
from shared_core.session.message_sequence import MessageSequence
from shared_core.testing import HashingEmbedder
from tests.stores.dict_store import DictStore


class ReadingStore(SQLiteStore):
    """Counts the messages that are read."""

    rows_read = 0

    def get(self, session: int, keys: Sequence[str] | Sequence[Position]) -> list[Record]:
        found = super().get(session, keys)
        self.rows_read += len(found)
        return found

    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        found = super().newest(session, upto, limit)
        self.rows_read += len(found)
        return found


def check_around(found: MessageSequence, expected: Sequence[Message], before: int, *, exact: bool) -> None:
    """Every message is found with its neighbours; `exact`: with as many of them as there are."""
    for at, message in enumerate(expected):
        around = found.around(message.id or "", before=before, after=2)
        assert around.messages[around.at] == message
        first = at - around.at
        assert expected[first : first + len(around.messages)] == around.messages
        assert not exact or around.messages == expected[max(0, at - before) : at + 3]


indexes = st.one_of(st.none(), st.integers(-9, 9))


@given(
    st.lists(st.sampled_from(["say", "prompt", "fork", "merge", "forget"]), max_size=12),
    st.booleans(), st.integers(-9, 9), indexes, indexes, st.sampled_from([None, 1, 2, -1]),
)  # fmt: skip
def test_it_is_equal_to_the_list_of_it(
    steps: list[str], other_store: bool, index: int, start: int | None, stop: int | None, step: int | None
) -> None:
    with closing(DictStore() if other_store else SQLiteStore(":memory:")) as store:
        memory = InfiniteMemory(store, embedder=HashingEmbedder())
        for number, what in enumerate(steps):
            if what == "say":
                memory.add(Message.user(str(number)))
            elif what == "prompt":
                memory.add(Message.system(str(number)))
            elif what == "fork" and memory.newest(1):
                memory.fork(f"b{number}")
            elif what == "merge" and memory.branch not in (None, "main"):
                side = str(memory.branch)
                memory.checkout("main")
                memory.merge(side, "full")
            elif what == "forget" and (newest := memory.newest(2)):
                memory.forget(ids=[newest[0].id or ""])
        for replaced in (False, True):
            found = memory.messages(replaced=replaced)
            expected = list(found)
            check_around(found, expected, abs(index), exact=not {"forget", "prompt", "merge"} & set(steps))
            assert len(found) == len(expected)
            assert bool(found) == bool(expected)
            assert list(reversed(found)) == expected[::-1]
            assert found[start:stop:step] == expected[start:stop:step]
            assert found == expected
            assert repr(found).endswith(" 1 message>" if len(expected) == 1 else f" {len(expected)} messages>")
            if -len(expected) <= index < len(expected):
                assert found[index] == expected[index]
            else:
                with pytest.raises(IndexError, match=str(index)):
                    found[index]


def test_the_usual_guards_are_true() -> None:
    memory = InfiniteMemory()
    assert not memory.messages()
    assert len(memory.messages()) == 0
    memory.add(Message.system("Be kind."))
    assert memory.messages()
    assert memory.messages()[-1].content == "Be kind."
    assert Message.user("hi") not in memory.messages()
    with pytest.raises(TypeError, match="tuple"):
        hash(memory.messages())
    assert memory.messages() != "Be kind."


def test_it_reads_what_is_asked_for() -> None:
    with closing(ReadingStore(":memory:")) as store:
        memory = InfiniteMemory(store, embedder=HashingEmbedder())
        memory.add([Message.user(str(number)) for number in range(2_000)])
        for use, most in ((bool, 1), (len, 0), (lambda m: m[-1], 1), (lambda m: m[-10:], 15), (lambda m: m[:3], 500)):
            messages = memory.messages()
            before = store.rows_read
            use(messages)
            assert store.rows_read - before <= most


def test_around_a_message_no_others_are_read() -> None:
    with closing(ReadingStore(":memory:")) as store, InfiniteMemory(store, embedder=HashingEmbedder()) as memory:
        memory.add([Message.user(str(number), id=f"number-{number}") for number in range(2_000)])
        memory.fork("side", at="number-5")
        memory.add(Message.user("aside", id="aside"))
        memory.checkout("main")
        messages, before = memory.messages(), store.rows_read
        found, at = messages.around("number-1000", before=1, after=2)
        assert ([message.id for message in found], at) == ([f"number-{n}" for n in range(999, 1003)], 1)
        assert store.rows_read - before <= 5
        assert messages.around("number-0", after=0).at == 0
        for unknown in ("nothing", "aside", "main", "side"):
            with pytest.raises(UnknownReferenceError):
                messages.around(unknown)
        with pytest.raises(UnknownReferenceError):
            messages.around("numb")
        with pytest.raises(ValueError, match=r"^before=-1"):
            messages.around("aside", before=-1)
    with InfiniteMemory() as memory, pytest.raises(UnknownReferenceError):
        memory.messages().around("m1")
