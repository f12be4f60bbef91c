"""Which turn each message joins; pure."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from shared_core.messages import Message
from shared_core.records import Newest

__all__ = ["assign_turns"]


def assign_turns(
    messages: Sequence[Message],
    newest: Newest,
    named: Newest | None,
    known: Mapping[str, Newest] = MappingProxyType({}),
) -> list[Newest]:
    """Return each message's turn: a user message opens one, a reply joins that of the message before it in the list.

    Args:
        messages: in order, with ids.
        newest: the newest turn of the branch, `Newest(None, -1)` before the first user message.
        named: the turn that the first replies join, if it is not the newest.
        known: id -> turn of those messages that stand on the branch already, as when a whole history is sent again.

    Returns:
        One `Newest` per message. System messages stand alone, in the time of the newest turn; so do replies before the
        first user message. What stands alone does not change which turn the next reply joins.
    """
    turns: list[Newest] = []
    joined = named or newest
    for message in messages:
        assert message.id is not None
        turn = known.get(message.id)
        if turn is None and message.role == "user":
            turn = newest = Newest(message.id, newest.turn_no + 1)
        elif turn is None:
            alone = message.role == "system" or joined.turn_id is None
            turn = Newest(message.id, newest.turn_no) if alone else joined
        if message.role == "user" or turn.turn_id != message.id:
            joined = turn
        turns.append(turn)
    return turns
