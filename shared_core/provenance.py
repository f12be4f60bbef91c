"""Which stored messages are copies or edited forms of one another, on all branches."""

from collections.abc import Sequence

from shared_core.records import MadeFrom, Record
from shared_core.store import Store


def families(store: Store, session: int, records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return, for the id of each message, the message with its original and all that was made from that.

    Each family is in the order of storing.
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
