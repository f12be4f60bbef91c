"""The memories of a pool: one store, one caller at a time for each, and a bounded number."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from shared_core import Message, SessionPool, SQLiteStore
from shared_core.errors import StoreUnavailableError
from shared_core.messages import Payload
from shared_core.testing import HashingEmbedder


def test_the_next_caller_s_reply_joins_the_newest_turn_not_the_last_caller_s() -> None:
    with SessionPool() as pool:
        with pool.use("1") as first:
            first.add(Message.user("one"))
            with pool.use("1") as second:
                [newest] = second.add(Message.user("two"))
        with pool.use("1") as again, pool.use("1") as other:
            for memory in (again, other):
                assert memory.add(Message.assistant("a reply"))[0].turn_id == newest.id


def test_two_callers_on_one_session_stand_where_they_like() -> None:
    with SessionPool() as pool, pool.use("1") as one, pool.use("1") as other:
        assert one is not other
        [asked] = one.add(Message.user("hello"))
        one.fork("side")
        one.add(Message.assistant("on the side"))
        assert [message.id for message in other.messages()] == [asked.id]
        assert (one.branch, other.branch) == ("side", "main")


def test_idle_memories_are_bounded_and_the_oldest_goes() -> None:
    with SessionPool(size=2) as pool:
        used = {}
        for name in ("1", "2", "3"):
            with pool.use(name) as memory:
                used[name] = memory
        with pool.use("2") as second, pool.use("3") as third, pool.use("1") as first:
            assert (second, third) == (used["2"], used["3"])
            assert first is not used["1"]


class MayBeAway(SQLiteStore):
    """A store that cannot be asked for a session while it is away."""

    away = False

    def session(self, user_id: str | None, session_id: str) -> int | None:
        if self.away:
            raise StoreUnavailableError("the server is away; try again")
        return super().session(user_id, session_id)


@pytest.mark.parametrize(("size", "kept"), [(10, True), (1_100_000, False)])
def test_a_memory_that_holds_many_images_is_not_kept(size: int, *, kept: bool) -> None:
    picture = Message.user("Look!", media_tokens=1_000, payload=Payload(format="test", data=["A" * size]))
    with SessionPool() as pool:
        with pool.use("1") as memory:
            memory.add([picture, Message.assistant("A cat.")])
            memory.context("What is it?")
        with pool.use("1") as next_one:
            assert (next_one is memory) == kept
            assert [message.content for message in next_one.messages()] == ["Look!", "A cat."]


def test_a_memory_stays_in_the_pool_while_the_store_is_away() -> None:
    with closing(MayBeAway(":memory:")) as store, SessionPool(store) as pool:
        with pool.use("1") as first:
            first.add(Message.user("hello"))
        store.away = True
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                pool.take("1")
        store.away = False
        with pool.use("1") as again:
            assert again is first


@pytest.mark.parametrize("given", [True, False])
def test_a_memory_that_outlives_its_pool_is_closed_when_it_is_given_back(tmp_path: Path, *, given: bool) -> None:
    store = SQLiteStore(tmp_path / "chat.db") if given else tmp_path / "chat.db"
    pool = SessionPool(store, embedder="words")
    with pool.use("one") as memory:
        memory.add(Message.user("Hello."))
        pool.close()
    assert memory._closed


def test_wrong_arguments_are_said_at_once_and_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_tokens=0"):
        SessionPool(max_tokens=0)
    with pytest.raises(TypeError, match="user_id"):
        SessionPool(user_id="ann")
    with SessionPool(scope="user") as pool, pytest.raises(ValueError, match="user_id"), pool.use("1"):
        pass


def test_many_threads_share_a_pool(tmp_path: Path) -> None:
    with SessionPool(tmp_path / "a.db", size=3, embedder=HashingEmbedder()) as pool:

        def work(number: int) -> None:
            for turn in range(10):
                with pool.use(str(number % 5)) as memory:
                    asked = memory.add(Message.user(f"{number}/{turn}"))[0]
                    memory.add(Message.assistant("ok"), turn=asked.id)
                    memory.context("what?")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in range(5):
            with pool.use(str(number)) as memory:
                messages = list(memory.messages())
            assert len(messages) == 40
            assert all(m.turn_id != m.id for m in messages if m.role == "assistant")
