"""The conversation that a history without a name belongs to: it begins alike, and holds most of it."""

from collections.abc import Sequence

from shared_core.history.normal_form import KEPT_WORDS, fingerprint, normal_forms, whatever_is_answered, words_of
from shared_core.messages import Message
from shared_core.queries import After, Says
from shared_core.records import SessionKey
from shared_core.session.turns import said_of
from shared_core.store import Store

ALIKE = 8
"""How many conversations of a user that hold the same message are told apart; the newest."""

LOOKED_FOR = 8
"""How many messages at the end of a history conversations are looked up by."""

READ_FIRST = 16
"""How many messages are read to tell how a conversation begins."""

COMPARED = 64
"""How many messages at the end of a history are looked up in each conversation that begins like it."""


def session_like(store: Store, user_id: str | None, messages: Sequence[Message]) -> str | None:
    """Return the conversation of a user that holds most of a history; None: none begins like it.

    Of those that hold equally much of it, the one that ends where the history does is taken, and then the oldest.
    """
    said = said_of(messages)
    answered = next((n for n, message in enumerate(said, 1) if message.role == "assistant"), None)
    best: tuple[tuple[int, bool], str] | None = None
    for one in sessions_saying(store, user_id, said[: _known_upto(said)])[-ALIKE:] if answered is not None else ():
        first = said_of(record.message for record in store.find(one.key, After(0, READ_FIRST)))
        if not _begins_like(first, said[:answered]) and not store.state(one.key).epoch:
            continue
        wanted = [print_ for print_ in map(fingerprint, said[-COMPARED:]) if print_ is not None]
        fit = len(store.find(one.key, Says(wanted, 1))), _ends_in(store, one.key, said[-COMPARED:])
        if best is None or fit > best[0]:
            best = fit, one.session_id
    return None if best is None else best[1]


def _begins_like(first: Sequence[Message], said: Sequence[Message]) -> bool:
    """Return whether a conversation begins with an exchange, whose answer may have been written anew.

    Args:
        first: the first messages of the conversation.
        said: the exchange.
    """
    ours, theirs = normal_forms(first[: len(said)]), normal_forms(said)
    if [*map(whatever_is_answered, ours)] != [*map(whatever_is_answered, theirs)]:
        return False
    words = words_of(said[-1])
    return len(words & words_of(first[len(said) - 1])) >= KEPT_WORDS * len(words)


def _ends_in(store: Store, session: int, said: Sequence[Message]) -> bool:
    """Return whether the newest messages of a conversation stand together in a history."""
    newest = store.find(session, After(max(0, store.state(session).last_seq - LOOKED_FOR), LOOKED_FOR))
    end, sent = normal_forms(said_of(record.message for record in newest)), normal_forms(said)
    return any(end == sent[upto - len(end) : upto] for upto in range(len(end), len(sent) + 1))


def _known_upto(said: Sequence[Message]) -> int:
    """Return how many messages there are up to the newest answer; what follows it is new."""
    return max((n for n, message in enumerate(said, 1) if message.role == "assistant"), default=0)


def sessions_saying(store: Store, user_id: str | None, said: Sequence[Message]) -> list[SessionKey]:
    """Return the conversations of a user that hold one of the newest of some messages, a rare one; the oldest first."""
    best: list[SessionKey] = []
    for message in said[: -LOOKED_FOR - 1 : -1]:
        wanted = fingerprint(message)
        found = store.sessions_with(user_id, wanted) if wanted is not None else []
        if found and (not best or len(found) < len(best)):
            best = found
        if 0 < len(best) <= ALIKE:
            break
    return sorted(best, key=lambda one: one.key)
