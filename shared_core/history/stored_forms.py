"""The forms in which the messages of a history are stored: as they were sent, edited, or as copies."""

from collections.abc import Sequence
from functools import cached_property

from shared_core.history.normal_form import fingerprint, says_the_same
from shared_core.history.recognition import families
from shared_core.messages import Message
from shared_core.records import Record, Says
from shared_core.session.live import LiveSession

FAMILIES = 64
"""For how many messages copies are looked up at a time."""

SAYING = 16
"""How many messages are looked up that say the same as one without an id; the newest."""


def is_form_of(record: Record, message: Message) -> bool:
    """Return whether a stored message is one of the history: itself, a copy, or as it was edited."""
    known = message.id is None or message.id in (record.message.id, record.picked_from)
    return known and says_the_same(record.message, message)


def saying(live: LiveSession, messages: Sequence[Message]) -> dict[int | None, list[Record]]:
    """Return the newest stored messages that say what some do, by their fingerprints, in the order of storing."""
    wanted = [one for one in map(fingerprint, messages) if one is not None]
    found: dict[int | None, list[Record]] = {}
    for record in live.store.find(live.key, Says(wanted, SAYING)) if wanted and live.key is not None else ():
        found.setdefault(fingerprint(record.message), []).append(record)
    return found


class StoredForms:
    """The stored forms of the messages of a history, wherever they stand.

    Args:
        live: the session.
        sent: the history.
        matched: the stored forms of its first messages, which are known already; the others are looked up.
    """

    def __init__(self, live: LiveSession, sent: Sequence[Message], matched: Sequence[Record] = ()) -> None:
        self._live = live
        self._sent = sent
        self._matched = [*matched]
        self._families: dict[str, list[Record]] = {}

    @cached_property
    def known(self) -> dict[str, Record]:
        """The stored messages whose id is an id of the history."""
        ids = [one.id for one in self._sent[len(self._matched) :] if one.id is not None]
        if self._live.key is None or not ids:
            return {}
        return {record.message.id or "": record for record in self._live.store.get(self._live.key, ids)}

    @cached_property
    def _saying(self) -> dict[int | None, list[Record]]:
        return saying(self._live, [one for one in self._sent[len(self._matched) :] if one.id is None])

    def at(self, index: int) -> list[Record]:
        """Return the stored messages with the id of a message of the history, or edited forms of it, that say the same.

        None stands for a message without an id: it may say what any other says.
        """
        message = self._sent[index]
        return [] if message.id is None else self.copies(index)

    def _roots(self, index: int) -> list[Record]:
        """Return stored messages whose families hold the forms of a message of the history."""
        if index < len(self._matched):
            return [self._matched[index]]
        message = self._sent[index]
        if message.id is None:
            return self._saying.get(fingerprint(message), [])
        return [self.known[message.id]] if message.id in self.known else []

    def copies(self, index: int) -> list[Record]:
        """Return all forms of a message of the history that say the same, its own first."""
        roots = self._roots(index)
        if self._live.key is not None and any(record.message.id not in self._families for record in roots):
            page = [one for n in range(index, min(index + FAMILIES, len(self._sent))) for one in self._roots(n)]
            page = [one for one in page if one.message.id not in self._families]
            self._families |= families(self._live.store, self._live.key, page)
        family = [one for record in roots for one in (record, *self._families[record.message.id or ""])]
        forms = {one.position: one for one in family}.values()
        return [one for one in forms if says_the_same(one.message, self._sent[index])]

    def is_forgotten(self, index: int) -> bool:
        """Return whether the id of a message of the history was forgotten, so that nothing may stand for it."""
        return self._sent[index].id in self._forgotten

    @cached_property
    def _forgotten(self) -> set[str | None]:
        """The ids of the history that were forgotten."""
        if self._live.key is None:
            return set()
        ids = {one.id for one in self._sent[len(self._matched) :] if one.id is not None}
        return {*self._live.store.are_forgotten(self._live.key, ids - self.known.keys())}
