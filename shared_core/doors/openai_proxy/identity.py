"""Whose request it is and which conversation it belongs to: headers, fields of the API, or how the history begins."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from starlette.requests import Request

from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.serving.bearer_tokens import ANY_USER

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

Headers = Sequence[tuple[str, str]]


def headers_of(request: Request) -> list[tuple[str, str]]:
    """Return the headers of a request, with small letters."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]


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


def new_session() -> str:
    """Return a name for a new conversation. It says nothing of what is said there: it stays when that is forgotten."""
    return f"chat-{uuid4().hex}"
