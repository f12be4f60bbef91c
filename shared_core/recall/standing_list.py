"""List the standing facts of a conversation with the messages that state them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from shared_core.index.standing_rules import StandingKind
from shared_core.recall.scope import Scope, read_at, reading, records_at
from shared_core.recall.standing_lane import facts_of
from shared_core.recall.supersession.changes import restated
from shared_core.records import Position, Record
from shared_core.session import LiveSession


@dataclass(frozen=True, slots=True)
class StandingFact:
    """A wish or fact that the user once stated and that holds until it is changed, such as "I'm vegan".

    Attributes:
        id: the id of the message that states it.
        kind: `"allergy"`, `"diet"`, `"name"`, `"role"`, `"constraint"`, `"preference"` or `"instruction"`.
        text: what the message says about it.
        superseded: whether a newer statement of the same kind about the same thing replaces it.
        created_at: when it was said; None if that is not known.
        name: who said it, if speakers have names.
        session_id: the session that holds the message.
    """

    id: str
    kind: StandingKind
    text: str
    superseded: bool
    created_at: datetime | None
    name: str | None
    session_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self) | {"created_at": self.created_at.isoformat() if self.created_at is not None else None}


def read_facts(live: LiveSession, scopes: Sequence[Scope]) -> list[StandingFact]:
    """Return the standing facts along the lines of some scopes, newest first."""
    with reading(scopes):
        facts = facts_of(scopes)
    names = {key: session_id for key, _, session_id in live.store.sessions(live.user_id)} if len(facts) else {}
    records: dict[tuple[int, Position], Record] = {}
    for number, scope in enumerate(scopes):
        rows = scope.line.rows[np.unique(facts.indices[facts.scopes == number])]
        records |= records_at(partial(read_at, live.store), scope.session_index.places(rows))
    replaced = restated(facts.codes)
    found = []
    for which in reversed(range(len(facts))):
        scope = scopes[int(facts.scopes[which])]
        (place,) = scope.session_index.places(scope.line.rows[[facts.indices[which]]])
        record = records.get(place)
        if record is None:  # forgotten since
            continue
        message, session = record.message, place[0]
        text = message.content[int(facts.starts[which]) : int(facts.ends[which])]
        name = live.session_id if session == live.key else names[session]
        found.append(
            StandingFact(
                message.id or "", facts.kind(which), text, bool(replaced[which]), message.created_at, message.name, name
            )
        )  # fmt: skip
    return found
