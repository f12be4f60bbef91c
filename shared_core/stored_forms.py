"""The forms in which the messages of a history are stored: as they were sent, edited, or as copies."""

from collections.abc import Iterable, Sequence
from functools import cached_property

from shared_core.messages import Message
from shared_core.recognition import Sent, chain_of, families, says_the_same
from shared_core.records import Record
from shared_core.session import LiveSession

FAMILIES = 64
"""For how many messages copies are looked up at a time."""


def is_form_of(record: Record, one: Sent) -> bool:
    """Return whether a stored message is one of the history: itself, a copy, or as it was edited."""
    message, chain = one
    if not says_the_same(record.message, message):
        return False
    if message.id is None:
        return record.message.id == chain
    return message.id in (record.message.id, record.picked_from) or record.message.id in (chain, edited_id(message))


def edited_id(message: Message) -> str:
    """Return the id of a message whose own id is stored with another text; equal for equal messages, anywhere."""
    return chain_of(f"edited {message.id}", message)


class StoredForms:
    """The stored forms of the messages of a history, wherever they stand.

    Args:
        live: the session.
        sent: the history.
        matched: the stored forms of its first messages, which are known already; the others are looked up.
    """

    def __init__(self, live: LiveSession, sent: Sequence[Sent], matched: Sequence[Record] = ()) -> None:
        self._live = live
        self._sent = sent
        self._matched = matched
        self._first = len(matched)
        self._families: dict[str, list[Record]] = {}

    @cached_property
    def known(self) -> dict[str, Record]:
        """The stored messages whose id is an id or a digest of the history."""
        sent = self._sent[self._first :]
        known = self._get({id_: None for one in sent for id_ in (one.message.id, one.chain) if id_ is not None})
        edited = [one.message for one in sent if one.message.id in known]
        edited = [message for message in edited if not says_the_same(known[message.id or ""].message, message)]
        return known | self._get([edited_id(message) for message in edited])

    def _get(self, ids: Iterable[str]) -> dict[str, Record]:
        ids = list(ids)
        if self._live.key is None or not ids:
            return {}
        return {record.message.id or "": record for record in self._live.store.get(self._live.key, ids)}

    def ids_of(self, index: int) -> list[str]:
        """Return the ids that a message of the history may be stored under, the one for a new message first."""
        message, chain = self._sent[index]
        if message.id is None:
            return [chain]
        own = self.known.get(message.id)
        return [message.id] if own is None or says_the_same(own.message, message) else [edited_id(message), chain]

    def at(self, index: int) -> list[Record]:
        """Return the stored messages that have an id of a message of the history and say the same."""
        return self._all[index]

    @cached_property
    def _all(self) -> list[list[Record]]:
        found = [[record] for record in self._matched]
        for index in range(self._first, len(self._sent)):
            message, chain = self._sent[index]
            records = [self.known[id_] for id_ in dict.fromkeys((*self.ids_of(index), chain)) if id_ in self.known]
            found.append([record for record in records if says_the_same(record.message, message)])
        return found

    def copies(self, index: int) -> list[Record]:
        """Return those messages, and all that were made from the same ones and say the same."""
        stored = self.at(index)
        if self._live.key is not None and any(record.message.id not in self._families for record in stored):
            page = [record for records in self._all[index : index + FAMILIES] for record in records]
            self._families |= families(self._live.store, self._live.key, page)
        family = [one for record in stored for one in self._families[record.message.id or ""]]
        return [one for one in family if says_the_same(one.message, self._sent[index].message)]

    def is_forgotten(self, index: int) -> bool:
        """Return whether a message of the history was forgotten, so that nothing may stand for it."""
        return not self.at(index) and not self._forgotten.isdisjoint(self.ids_of(index))

    @cached_property
    def _forgotten(self) -> set[str]:
        """The ids of the history that were forgotten."""
        if self._live.key is None:
            return set()
        missing = (index for index, records in enumerate(self._all) if not records)
        ids = {id_ for index in missing for id_ in self.ids_of(index)}
        return self._live.store.are_forgotten(self._live.key, ids - self.known.keys())
