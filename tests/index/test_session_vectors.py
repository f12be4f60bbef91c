"""The vectors of a session: none is computed twice or outlives its text, and each is restored to the last bit."""

import re
from collections.abc import Sequence
from contextlib import closing
from functools import cache, partial, update_wrapper
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.errors import EmbedderMismatchError, StoreError
from shared_core.index import session_vectors
from shared_core.index.session_vectors import decode_vectors, encode_vector, text_hash
from shared_core.recall.scope import RecallUnit
from shared_core.recall.settings import EmbedText, message_text, name_of, turn_text
from shared_core.records import MAIN, Derived, Position, Snapshot, VectorRows
from shared_core.testing.hashing_embedder import HashingEmbedder
from shared_core.testing.oracle import Session, drafts
from tests.index.sessions import embed_steps, fill, path_to, refreshed, vectors_of
from tests.support.histories import CountingStore


@pytest.fixture
def session(store: CountingStore) -> Session:
    return Session(store)


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder(8)


class TestVectors:
    def test_a_vector_of_another_text_is_not_adopted(self, session: Session, embedder: HashingEmbedder) -> None:
        """A turn that has grown since has the position of its last message, but not its vector."""
        session.append(MAIN, drafts("ux"))
        vectors = vectors_of(session)
        session.store.keep(session.key, VectorRows("space", [(Position(0, 0), text_hash("old"), bytes(16))]))
        fill(vectors, embedder)
        assert embedder.documents == ["x"]
        stored = session.store.vectors(session.key, "space", [Position(0, 0)])
        assert list(stored) == [(Position(0, 0), text_hash("x"), encode_vector(embedder.embed_query("x")))]

    def test_a_copy_is_made_of_an_equal_text_alone_and_never_for_what_is_forgotten(
        self, session: Session, embedder: HashingEmbedder
    ) -> None:
        session.append(MAIN, drafts("ux", "ay", "uz"))
        vectors, here = vectors_of(session), [Position(0, depth) for depth in range(3)]
        fill(vectors, embedder, [0])
        session.store.keep(session.key, VectorRows("space", [(here[1], text_hash("old"), bytes(16))]))
        session.forget([here[2]])
        refreshed(session, vectors.session_index)
        assert vectors.drop_forgotten()
        assert vectors.adopt(here[1:], [text_hash("x"), text_hash("x")]) == [1], "of what is gone, no vector is kept"
        copied = encode_vector(embedder.embed_query("x"))
        assert vectors.unsaved == VectorRows("space", ((here[1], text_hash("x"), copied),))

    def test_a_message_whose_old_text_another_one_has_now_gives_it_its_vector_and_keeps_none(
        self, session: Session
    ) -> None:
        session.append(MAIN, drafts("ua", "ab"))
        vectors, here, old = vectors_of(session), [Position(0, 0), Position(0, 1)], bytes(16)
        session.store.keep(session.key, VectorRows("space", [(here[0], text_hash("b"), old)]))
        assert vectors.adopt(here, [text_hash("a"), text_hash("b")]) == [0]
        assert vectors.unsaved == VectorRows("space", ((here[1], text_hash("b"), old),))

    def test_a_long_text_keeps_a_vector_for_each_piece(self, session: Session) -> None:
        class Splitting(HashingEmbedder):
            def split(self, text: str) -> list[str]:
                return list(text)

        session.append(MAIN, drafts("uabc", "ad", "uabc2"))
        vectors, embedder = vectors_of(session), Splitting(8)
        fill(vectors, embedder)
        assert embedder.documents == list("abcdabc2")
        assert vectors.vectors.owners.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
        assert vectors_of(session).vectors.owners.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
        rows, cosines = vectors.vectors.search(embedder.embed_query("c"), 2)
        assert rows.tolist() == [2, 0]
        np.testing.assert_allclose(cosines, 1, atol=2e-3)

    def test_forgetting_forgets_vectors(self, session: Session, embedder: HashingEmbedder) -> None:
        session.append(MAIN, drafts("ux", "ay", "uz"))
        vectors = vectors_of(session)
        fill(vectors, embedder)
        vectors.save_snapshot()
        session.forget([Position(0, 0)])
        index = refreshed(session, vectors.session_index)
        assert vectors.drop_forgotten()
        rows = index.line(path_to(session, Position(0, 2))).rows
        assert rows.tolist() == [1, 2]
        assert vectors.missing(np.array([False, True, True])).tolist() == []
        half = embedder.embed_documents(["y", "z"]).astype(np.float16)
        np.testing.assert_array_equal(vectors.vectors.first(rows), half)
        assert not index.may_be_saved, "a snapshot would hold what is forgotten"
        anew = vectors_of(session)
        np.testing.assert_array_equal(anew.vectors.matrix(np.arange(2)), half)

    @pytest.mark.parametrize("wrong", ["damaged", "other dimension", "old epoch"])
    def test_a_wrong_snapshot_is_not_trusted(
        self, store: CountingStore, session: Session, embedder: HashingEmbedder, wrong: str
    ) -> None:
        session.append(MAIN, drafts("ux", "ay"))
        vectors = vectors_of(session)
        fill(vectors, embedder)
        vectors.save_snapshot()
        data = store.snapshot(session.key, "vectors/space")
        assert data is not None
        if wrong == "damaged":
            store.keep(session.key, Snapshot("vectors/space", data[:-1] + bytes([data[-1] ^ 1])), 0)
        elif wrong == "old epoch":
            session.forget([])
            store.keep(session.key, Snapshot("vectors/space", data), 1)
        else:
            store.keep(session.key, VectorRows("space", [(Position(0, row), "", bytes(8)) for row in range(2)]))
        store.reset()
        rebuilt = vectors_of(session, dimension=4 if wrong == "other dimension" else 8)
        assert store.rows["all_vectors"] == 2
        assert rebuilt.vectors.owners.tolist() == [0, 1]
        assert rebuilt.saved == []

    def test_a_snapshot_may_know_rows_that_were_not_read(
        self, store: CountingStore, session: Session, embedder: HashingEmbedder
    ) -> None:
        """Another process adds a message and keeps its vector between reading the rows here and the vectors."""
        session.append(MAIN, drafts("ux", "ay"))
        index = refreshed(session)
        session.append(MAIN, drafts("uz"))
        theirs = vectors_of(session)
        fill(theirs, embedder)
        theirs.save_snapshot()
        ours = vectors_of(session, index)
        assert ours.vectors.owners.tolist() == [0, 1]
        rows, _ = ours.vectors.search(embedder.embed_query("y"), 3, np.full(2, True))
        assert rows[0] == 1
        refreshed(session, index)
        assert ours.missing(np.full(3, True)).tolist() == [2]

    def test_nothing_forgotten_during_the_call_is_kept(self, session: Session, embedder: HashingEmbedder) -> None:
        """Another process forgets a message while its text is being embedded."""
        session.append(MAIN, drafts("ux", "ay"))
        vectors = vectors_of(session)
        steps = embed_steps(vectors, embedder, [1, 0])
        request = next(steps)
        session.forget([Position(0, 1)])
        with pytest.raises(StopIteration):
            steps.send(request.answer())
        vectors.save()
        assert [position for position, *_ in session.store.vectors(session.key, "space")] == [Position(0, 0)]
        assert refreshed(session, vectors.session_index).gone.tolist() == [1]
        assert not vectors.session_index.may_be_saved, "a snapshot would hold what is forgotten"


class TestParts:
    """A snapshot is kept in parts, of which only those with new vectors change."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(session_vectors, "PART", 4)

    def say(self, session: Session, start: int, stop: int) -> None:
        session.append(MAIN, drafts(*(f"u{number}" for number in range(start, stop))))

    def parts(self, session: Session) -> list[bytes | None]:
        names = ("vectors/space", *(f"vectors/space/{number}" for number in range(1, 5)))
        return [session.store.snapshot(session.key, name) for name in names]

    def test_a_row_may_have_several_vectors(self, session: Session) -> None:
        self.say(session, 0, 6)
        vectors, pieces = vectors_of(session), [1, 2, 3, 5, 1, 1]
        numbers = np.random.default_rng(3).normal(size=(sum(pieces), 8)).astype(np.float32)
        parts = np.split(numbers, np.cumsum(pieces)[:-1])
        positions = vectors.session_index.positions(np.arange(6))
        for some in (range(4), range(4, 6)):
            vectors.put([(positions[row], f"{row}", parts[row]) for row in some])
            vectors.save_snapshot()
            again, asked = vectors_of(session), np.arange(6, dtype=np.int32)
            assert sum(again.saved) == len(again.vectors) == len(vectors.vectors)
            for query in numbers:
                expected = vectors.vectors.cosines(query, asked)
                np.testing.assert_array_equal(again.vectors.cosines(query, asked), expected)

    def test_what_is_kept_already_is_not_written_again(
        self, store: CountingStore, session: Session, embedder: HashingEmbedder
    ) -> None:
        vectors, before = vectors_of(session), self.parts(session)
        for size, written in ((10, 3), (11, 1), (12, 1), (13, 1), (20, 2)):
            self.say(session, len(vectors.session_index), size)
            refreshed(session, vectors.session_index)
            fill(vectors, embedder, range(len(vectors.vectors), size))
            assert vectors.snapshot_due(1)
            store.reset()
            vectors.save_snapshot()
            assert (store.calls["put_snapshot"], sum(vectors.saved), vectors.snapshot_due(1)) == (written, size, False)
            store.reset()
            again = vectors_of(session)
            assert (store.rows["all_vectors"], store.rows["vectors"], sum(again.saved)) == (0, 0, size)
            np.testing.assert_array_equal(again.vectors.owners, vectors.vectors.owners)
            np.testing.assert_array_equal(
                again.vectors.matrix(np.arange(size)), vectors.vectors.matrix(np.arange(size))
            )
            now = self.parts(session)
            full = [part for part in now if part and part in before]
            assert len(full) == sum(part is not None for part in now) - written
            before = now

    @pytest.mark.parametrize("lost", [0, 2])
    def test_parts_of_two_processes_go_together(
        self, store: CountingStore, session: Session, embedder: HashingEmbedder, lost: int
    ) -> None:
        """Another process had other vectors first, and wrote one of its parts over these."""
        self.say(session, 0, 14)
        ours, theirs = vectors_of(session), vectors_of(session)
        fill(ours, embedder)
        fill(theirs, embedder, list(range(13, -1, -1)))
        theirs.save_snapshot()
        name = f"vectors/space/{lost}" if lost else "vectors/space"
        part = store.snapshot(session.key, name)
        ours.save_snapshot()
        assert part is not None
        store.keep(session.key, Snapshot(name, part), 0)
        again = vectors_of(session)
        fill(again, embedder, again.missing(np.full(14, True)).tolist())
        assert sorted(again.vectors.owners.tolist()) == list(range(14))
        assert not again.session_index.damaged
        for row in range(14):
            question = embedder.embed_query(str(row))
            for found, right in zip(again.vectors.search(question, 14), ours.vectors.search(question, 14), strict=True):
                np.testing.assert_array_equal(found, right)
        again.save_snapshot()
        assert vectors_of(session).vectors.owners.tolist() == again.vectors.owners.tolist()


@given(st.integers(1, 5), st.integers(0, 3))
def test_pieces_are_kept_in_half_precision(dimension: int, pieces: int) -> None:
    vectors = np.random.default_rng(dimension).standard_normal((pieces, dimension)).astype(np.float32)
    data = encode_vector(vectors)
    assert len(data) == 2 * dimension * pieces
    decoded = decode_vectors(data, dimension)
    np.testing.assert_array_equal(decoded, vectors.astype(np.float16))
    assert decoded.dtype == np.float16
    assert encode_vector(decoded.astype(np.float32)) == data


class Refusing(CountingStore):
    """Cannot be written while `refusing` is set."""

    refusing = False

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        if self.refusing and isinstance(derived, VectorRows):
            raise StoreError("the disk is full")
        return super().keep(session, derived, epoch)


@pytest.mark.parametrize("forgets", [False, True])
def test_vectors_wait_until_the_store_can_be_written(forgets: bool) -> None:
    with closing(Refusing(":memory:")) as store:
        session = Session(store)
        session.append(MAIN, drafts("ux", "ay"))
        vectors, embedder = vectors_of(session), HashingEmbedder(8)
        store.refusing = True
        with pytest.raises(StoreError):
            fill(vectors, embedder)
        assert vectors.vectors.owners.tolist() == [0, 1], "they are searched all the same"
        store.refusing = False
        if forgets:
            session.forget([Position(0, 0)])
        vectors.save()
        kept = [position for position, *_ in store.vectors(session.key, "space")]
        assert kept == [Position(0, 0), Position(0, 1)][forgets:]
        store.reset()
        vectors.save()
        assert not store.calls["put_vectors"]
        assert embedder.documents == ["x", "y"]


def shout(messages: Sequence[Message]) -> str:
    return messages[0].content.upper()


class Shout:
    def __call__(self, messages: Sequence[Message]) -> str:
        return messages[0].content.upper()

    def quietly(self, messages: Sequence[Message]) -> str:
        return messages[0].content.lower()


class TestSpaces:
    """The name under which a session's vectors are kept says whose they are, and what they stand for."""

    @pytest.mark.parametrize("name", ["models/c#", "a#turn/7"])
    @pytest.mark.parametrize("unit", ["message", "turn"])
    def test_an_embedder_knows_its_vectors_again(self, tmp_path: Path, name: str, unit: RecallUnit) -> None:
        for _ in range(2):
            embedder = HashingEmbedder(8, name=name)
            with InfiniteMemory(tmp_path / "chat.db", embedder=embedder, recall_unit=unit) as memory:
                memory.add(Message.user("tower", id="u1"))
                memory.index()
                spaces = memory.stats()["embedders"]
        assert (embedder.documents, len(spaces)) == ([], 1)
        other = HashingEmbedder(8, name="other")
        message = re.escape(f"by {embedder.fingerprint.key!r}")
        with (
            InfiniteMemory(tmp_path / "chat.db", embedder=other, recall_unit=unit) as memory,
            pytest.raises(EmbedderMismatchError, match=message),
        ):
            memory.search("tower")

    def test_what_vectors_stand_for_keeps_them_apart(self, tmp_path: Path) -> None:
        """A turn's text and a message's have spaces of their own, whichever function makes them."""
        embedder, spaces = HashingEmbedder(8), []
        units: tuple[RecallUnit, ...] = ("message", "turn")
        functions: tuple[EmbedText, ...] = (message_text, turn_text, str)
        for unit, text in product(units, functions):
            with InfiniteMemory(tmp_path / "chat.db", embedder=embedder, recall_unit=unit, embed_text=text) as memory:
                memory.add(Message.user("tower", id="u1"))
                memory.index()
                spaces = memory.stats()["embedders"]
        assert len(set(spaces)) == 6

    @pytest.mark.parametrize(
        "nameless", [lambda said: said[0].content, partial(shout), update_wrapper(partial(shout), shout)]
    )
    def test_what_has_no_name_of_its_own_makes_no_text(self, tmp_path: Path, nameless: EmbedText) -> None:
        """All lambdas of a module share one, and their vectors would be taken for each other's."""
        with pytest.raises(ValueError, match=r"embed_text=.*pass a function defined by `def`"):
            InfiniteMemory(tmp_path / "chat.db", embed_text=nameless)
        assert not list(tmp_path.iterdir())

    def test_a_name_tells_what_makes_the_text(self) -> None:
        here = shout.__module__
        made: list[EmbedText] = [shout, Shout(), Shout().quietly, cache(shout), str]
        names = ["shout", "Shout", "Shout.quietly", "shout"]
        assert list(map(name_of, made)) == [*(f"{here}.{name}" for name in names), "builtins.str"]
