"""Which sessions have changed since a moment: told however transactions end, and whoever wrote."""

from contextlib import closing

import pytest

from shared_core import PostgresStore
from shared_core.records import MAIN, MainChanges, Mark
from shared_core.testing.oracle import Session, drafts
from shared_core.testing.store_contract.change_contract import Follower

pytestmark = pytest.mark.server


class MarksTheNewestTransaction(PostgresStore):
    """Reads on from the newest number given out, as one does with numbers from a sequence."""

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        found = super().main_changes(user_id, since)
        with self.database.reading() as statements:
            ((newest,),) = statements.run("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint", None)
        return found._replace(mark=(newest, *(found.mark or ())[1:]))


@pytest.mark.parametrize("kind", [PostgresStore, MarksTheNewestTransaction])
def test_a_change_that_is_committed_after_a_later_one_is_told(address: str, kind: type[PostgresStore]) -> None:
    with closing(PostgresStore(address)) as slow, closing(kind(address)) as reader:
        first, second = Session(slow, "first", "ann"), Session(slow, "second", "ann")
        reading = Follower(reader, "ann")
        with slow.transaction():
            slow.append(first.key, MAIN, drafts("u1"))
            with closing(PostgresStore(address)) as fast:
                fast.append(second.key, MAIN, drafts("u1"))
            reading.ask()
            assert [key.session_id for key in reading.states] == ["second"]
        reading.ask()
        told = sorted(key.session_id for key in reading.states)
        assert told == (["first", "second"] if kind is PostgresStore else ["second"])


def test_numbers_of_another_server_are_not_compared(address: str) -> None:
    """What was copied from one that had counted further is there; what changes from now on is told."""
    with closing(PostgresStore(address)) as store:
        session = Session(store, "s", "ann")
        session.append(MAIN, drafts("u1"))
        known = store.main_changes("ann")
        assert known.mark is not None
        assert store.main_changes("ann", (known.mark[0], known.mark[1] + 1))[::2] == known[::2]
        with store.database.writing() as rows:
            rows.run("UPDATE {s}.sessions SET changed = 1::bigint << 60", None)
        assert store.main_changes("ann", known.mark).states == []
        session.append(MAIN, drafts("a1"))
        assert [state.last_seq for _, state in store.main_changes("ann", known.mark).states] == [2]
