"""Whose request it is and which conversation it belongs to: headers, fields of the API, or how the history begins."""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from shared_core.messages import Message
from shared_core.openai_proxy.refusal import Refused
from shared_core.recognition import Sent, chained, said_of, says_the_same
from shared_core.records import After, Record
from shared_core.serving.bearer_tokens import ANY_USER
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
"""How many conversations of a user that begin with the same exchange are told apart."""

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


def beginning(messages: Sequence[Message]) -> str | None:
    """Return the name for a conversation that begins like this history; None: nothing is answered in it yet.

    It is a digest of what is said up to the first answer. `follow` takes such digests for ids of messages.
    """
    said = said_of([*chained(messages, "")])
    answered = next((one.chain for one in said if one.message.role == "assistant"), None)
    return None if answered is None else f"chat-{answered}"


def session_like(store: Store, user_id: str | None, messages: Sequence[Message]) -> str | None:
    """Return the conversation of a user that holds most of a history; None: none begins like it.

    Of those that hold equally much of it, the one that ends where the history does is taken, and then the oldest.
    """
    name = beginning(messages)
    said = said_of([*chained(messages, "")])[-COMPARED:]
    best: tuple[tuple[int, bool], str] | None = None
    for each in _alike(name) if name is not None else ():
        session = store.session(user_id, each)
        if session is None:  # never begun, or renamed since
            continue
        known = {record.message.id for record in store.get(session, [one.chain for one in said])}
        newest = store.find(session, After(store.state(session).last_seq - 2, 2))
        fit = (len(known), _is_the_end(newest, said, known))
        if best is None or fit > best[0]:
            best = fit, each
    return None if best is None else best[1]


def _is_the_end(newest: Sequence[Record], said: Sequence[Sent], known: Collection[str | None]) -> bool:
    """Return whether the newest messages of a conversation are some of a history; `known` are the ids that it has.

    The answer in a response is stored under the id of the response. It is known by what it says after a known message.
    """
    if not newest or newest[-1].message.id in known:
        return bool(newest)
    if len(newest) < 2 or newest[0].message.id not in known:
        return False
    after = (then.message for one, then in pairwise(said) if one.chain == newest[0].message.id)
    return any(says_the_same(newest[-1].message, message) for message in after)


def new_session(store: Store, user_id: str | None, messages: Sequence[Message]) -> str:
    """Return a name for a new conversation with this history, in which something is answered.

    Beyond `ALIKE` conversations that begin with the same exchange, the last one is taken again: what each of them says
    after that is a branch of it.
    """
    name = beginning(messages)
    assert name is not None
    names = _alike(name)
    return next((each for each in names if store.session(user_id, each) is None), names[-1])


def _alike(name: str) -> list[str]:
    return [name, *(f"{name}-{number}" for number in range(2, ALIKE + 1))]
