"""The stored forms of messages: as they were sent, edited, or copied to other branches."""

from collections.abc import Sequence
from functools import cached_property

from shared_core.history.normal_form import fingerprint, says_the_same
from shared_core.messages import Message
from shared_core.queries import MadeFrom, Says
from shared_core.records import Record
from shared_core.session.live import LiveSession
from shared_core.store import Store

PAGE = 8
"""How many messages are looked up first, from the end of a history backwards; then twice as many, and so on.

Most histories differ from the last one only at their end, so one small read is usually enough.
"""

FAMILIES = 64
"""For how many messages copies are looked up at a time."""

SAYING = 16
"""How many messages are looked up that say the same as one without an id; the newest."""


def families(store: Store, session: int, records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return, for the id of each message, the message with its original and all that was made from that, on any branch.

    These are its copies and edited forms. Each family is in the order of storing.
    """
    first = {record.message.id or "": record for record in records}
    missing: set[str] = set()
    while wanted := {one.picked_from for one in first.values() if one.picked_from is not None} - missing:
        originals = {record.message.id: record for record in store.get(session, sorted(wanted))}
        missing |= wanted - originals.keys()
        first = {id_: originals.get(one.picked_from, one) for id_, one in first.items()}
    members = {one.message.id: {one.message.id: one} for one in first.values()}
    family_of = {id_: id_ for id_ in members}
    newest = list({one.message.id: one for one in first.values()}.values())
    while newest:
        made = store.find(session, MadeFrom([one.position for one in newest]))
        newest = [one for one in made if one.picked_from in family_of and one.message.id not in family_of]
        for one in newest:
            family_of[one.message.id] = family = family_of[one.picked_from]
            members[family][one.message.id] = one
    in_order = {id_: sorted(family.values(), key=lambda one: one.seq) for id_, family in members.items()}
    return {id_: in_order[one.message.id] for id_, one in first.items()}


def saying(live: LiveSession, messages: Sequence[Message]) -> dict[int | None, list[Record]]:
    """Return the newest stored messages that say what some do, by their fingerprints, in the order of storing."""
    wanted = [one for one in map(fingerprint, messages) if one is not None]
    found: dict[int | None, list[Record]] = {}
    for record in live.store.find(live.key, Says(wanted, SAYING)) if wanted and live.key is not None else ():
        found.setdefault(fingerprint(record.message), []).append(record)
    return found


class Forms:
    """The stored forms of the messages of one history, which are looked up page by page from its end backwards.

    Args:
        live: the session.
        said: the history.
        ahead: how many messages before a page have their ids looked up with it.
    """

    def __init__(self, live: LiveSession, said: Sequence[Message], ahead: int = 0) -> None:
        self._live = live
        self._said = said
        self._ahead = ahead
        self._known: dict[str, Record] = {}
        self._with_id = self._with_words = len(said)  # what stands from there on has been looked up
        self._words: dict[int | None, list[Record]] = {}
        self._families: dict[str, list[Record]] = {}

    @cached_property
    def ids(self) -> set[str]:
        """The ids that the history has for its messages."""
        return {one.id for one in self._said if one.id is not None}

    def own(self, index: int) -> Record | None:
        """Return the message that is stored under the id of a message of the history."""
        while index < self._with_id and self._live.key is not None:
            page = max(PAGE, len(self._said) - self._with_id) + self._ahead
            start, end = max(0, min(index, self._with_id - page)), self._with_id
            ids = [one.id for one in self._said[start:end] if one.id is not None]
            found = self._live.store.get(self._live.key, ids) if ids else ()
            self._known |= {record.message.id or "": record for record in found}
            self._with_id = start
        return self._known.get(self._said[index].id or "")

    def of(self, index: int) -> list[Record]:
        """Return what says the same as a message of the history: with its id, its original and copies, or by words."""
        message = self._said[index]
        if message.id is None:
            found = self._by_words(index)
        else:
            own = self.own(index)
            found = self._family(index, own) if own is not None else []
        return [one for one in found if says_the_same(one.message, message)]

    def _by_words(self, index: int) -> list[Record]:
        while index < self._with_words:
            page = max(PAGE, len(self._said) - self._with_words)
            start, end = max(0, min(index, self._with_words - page)), self._with_words
            self._words |= saying(self._live, [one for one in self._said[start:end] if one.id is None])
            self._with_words = start
        return self._words.get(fingerprint(self._said[index]), [])

    def _family(self, index: int, own: Record) -> list[Record]:
        if own.message.id not in self._families and self._live.key is not None:
            page = range(max(index - FAMILIES + 1, self._with_id), index + 1)
            near = [one for n in page if (one := self.own(n)) and one.message.id not in self._families]
            self._families |= families(self._live.store, self._live.key, near)
        return self._families[own.message.id or ""]

    def is_one(self, index: int, record: Record) -> bool:
        """Return whether a stored message is one of the history: itself, a copy, edited as it is, or added before.

        An answer whose id is not stored is one that `add` stored there. A question with an id of its own is another
        one: two callers may ask the same at the same time.
        """
        message = self._said[index]
        if not says_the_same(record.message, message):
            return False
        if message.id is None or message.id in (record.message.id, record.picked_from):
            return True
        if self.own(index) is not None:
            return any(record.position == one.position for one in self.of(index))
        return message.role != "user" and record.message.id not in self.ids and not self.is_forgotten(index)

    def is_forgotten(self, index: int) -> bool:
        """Return whether the id of a message of the history was forgotten, so that nothing may stand for it."""
        return self._said[index].id in self._forgotten

    @cached_property
    def _forgotten(self) -> set[str]:
        return self._live.store.are_forgotten(self._live.key, self.ids) if self._live.key is not None else set()

    @cached_property
    def _twins(self) -> set[int]:
        first: dict[str, int] = {}
        pairs = enumerate(self._said)
        return {n for n, one in pairs if one.id is not None and first.setdefault(one.id, n) != n}

    def is_twin(self, index: int) -> bool:
        """Return whether the history has the id of a message for an earlier one, too."""
        return index in self._twins
