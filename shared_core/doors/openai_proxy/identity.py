"""Whose request it is and which conversation it belongs to: headers, fields of the API, or how the history begins."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.serving.bearer_tokens import ANY_USER
from shared_core.history.normal_form import fingerprint, normal_forms, says_the_same
from shared_core.messages import Message
from shared_core.records import After, Says, SessionKey
from shared_core.session.turns import said_of
from shared_core.store import Store

USER_HEADERS = ("x-user-id", "x-openwebui-user-id")
SESSION_HEADERS = ("x-session-id", "x-openwebui-chat-id")
"""Headers that name the user and the conversation. Open WebUI sends its own if it is told to forward them."""

USER_FIELDS = ("user", "safety_identifier")
USER_METADATA = ("user_id",)
SESSION_METADATA = ("session_id", "conversation_id", "thread_id", "chat_id")

LONGEST_NAME = 256
"""Characters of the longest name of a user or a session."""

LONGEST_RESPONSE_ID = 2048
"""Characters of the longest id of a response that a request goes on after. Gateways encode what they need into ids."""

UNSET = frozenset({"", "null", "none", "undefined", "new"})
"""What programs send if they have no name yet: a template that is filled with nothing, or a new chat's."""

ALIKE = 8
"""How many conversations of a user that hold the same message are told apart; the newest."""

LOOKED_FOR = 8
"""How many messages at the end of a history conversations are looked up by."""

READ_FIRST = 16
"""How many messages are read to tell how a conversation begins."""

COMPARED = 64
"""How many messages at the end of a history are looked up in each conversation that begins like it."""

Headers = Sequence[tuple[str, str]]


def header(headers: Headers, names: Sequence[str]) -> str | None:
    """Return the value of the first of some headers that is there.

    Raises:
        Refused: with 400, if there are two values of one, or the value is no name.
    """
    for name in names:
        values = {value for key, value in headers if key == name}
        if len(values) > 1:
            raise Refused(400, f"the header {name} was sent more than once")
        for value in values:
            try:
                found = checked_name(name, value.encode("latin-1").decode("utf-8"))
            except UnicodeError:
                raise Refused(400, f"the header {name} is not UTF-8") from None
            if found is not None:
                return found
    return None


def user_of(bearer: str | None, headers: Headers, body: Mapping[str, Any], otherwise: str | None) -> str | None:
    """Return the user a request belongs to; None: nobody.

    The user of a token is the user, whatever the fields of the API say: a program may send its own users' names there.

    Args:
        bearer: the user of the request's token, or `*`. None: no tokens are needed.
        headers: the headers of the request, with small letters.
        body: the fields of the request.
        otherwise: the user of a request without a token that names none.

    Raises:
        Refused: a name is none; with 403, the token belongs to another user; with 400, no user is named, and has to be.
    """
    named = header(headers, USER_HEADERS)
    if bearer not in (None, ANY_USER):
        if named not in (None, bearer):
            raise Refused(403, "the token belongs to another user", code="wrong_user")
        return bearer
    user = named or _field(body, USER_FIELDS) or _field(_metadata(body), USER_METADATA)
    if user is None and bearer is not None:
        raise Refused(400, f"this token is for many users: name the user in the header {USER_HEADERS[0]}")
    return user or otherwise


def session_of(headers: Headers, body: Mapping[str, Any]) -> str | None:
    """Return the conversation that a request names; None: it names none."""
    named = header(headers, SESSION_HEADERS)
    if named is not None:
        return named
    conversation = body.get("conversation")
    if isinstance(conversation, Mapping):
        return _field(conversation, ("id",))
    return _field(body, ("conversation",)) or _field(_metadata(body), SESSION_METADATA)


def _metadata(body: Mapping[str, Any]) -> Mapping[str, Any]:
    given = body.get("metadata")
    return given if isinstance(given, Mapping) else {}


def _field(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    for name in names:
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            raise Refused(400, f"{name} must be a string")
        found = None if value is None else checked_name(name, value)
        if found is not None:
            return found
    return None


def checked_name(name: str, value: str, longest: int = LONGEST_NAME) -> str | None:
    """Return a name; None: a program sent what stands for none, which all who send it would share."""
    if value.strip().lower() in UNSET:
        return None
    if len(value) > longest or not value.isprintable() or "{{" in value:
        raise Refused(400, f"{name}: expected 1 to {longest} characters that can be printed, and no {{{{")
    return value


# Conversations that no request names


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
    """Return whether a conversation begins with an exchange; `first` are its first messages."""
    return len(first) >= len(said) and all(map(says_the_same, first, said))


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


def new_session() -> str:
    """Return a name for a new conversation. It says nothing of what is said there: it stays when that is forgotten."""
    return f"chat-{uuid4().hex}"
