"""Read files of other programs. Their formats are recognized by content, without those programs' packages."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from shared_core.arguments import one_of
from shared_core.display import short
from shared_core.errors import InputFileError
from shared_core.formats.anthropic import is_anthropic
from shared_core.sharing.format import LineError
from shared_core.sharing.readers.archive import is_archive, json_members
from shared_core.sharing.readers.chatgpt import read_chatgpt
from shared_core.sharing.readers.claude import read_claude
from shared_core.sharing.readers.conversation import Conversation, Entry, list_of
from shared_core.sharing.readers.gemini import is_takeout, read_takeout, takeout_sessions
from shared_core.sharing.readers.openai import Document, messages_of, parsed, text_of

__all__ = ["FORMATS", "Conversation", "Entry", "Foreign", "read_foreign"]


@dataclass(frozen=True, slots=True)
class Foreign:
    """The content of another program's file.

    Attributes:
        name: the file.
        format: the name of its format.
        entries: its conversations, in order.
    """

    name: str
    format: str
    entries: Sequence[Entry]

    @property
    def ids(self) -> list[str]:
        """The ids of the conversations."""
        return [entry.id for entry in self.entries]


class _Format(NamedTuple):
    what: str
    fits: Callable[[Document], bool]
    read: Callable[[Document], list[Entry]]


def read_foreign(path: str | os.PathLike[str], format: str | None = None) -> Foreign:
    """Return the content of a file.

    Args:
        path: a file in one of `FORMATS`, JSON or JSONL, or a zip archive with such files.
        format: the name of its format. None: the format that its content has.

    Raises:
        InputFileError: the file has none of these forms, or not the given one.
        ValueError: there is no such format.
    """
    if format is not None:
        one_of("format", format, tuple(FORMATS))
    name = os.fspath(path)
    if not is_archive(path):
        document = _parsed(name, text_of(path))
        found = format or _format_of(document)
        _check(document, found)
        return Foreign(name, found, _without_doubles(name, _FORMATS[found].read(document)))
    entries: dict[str, list[Entry]] = {}
    seen = []
    for member in json_members(path):
        document = _parsed(f"{name}:{member.name}", member.text)
        seen.append(member.name)
        fitting = _in_archive(document) if format is None else format if _FORMATS[format].fits(document) else None
        if fitting is not None:
            entries.setdefault(fitting, []).extend(_FORMATS[fitting].read(document))
    if not entries:
        listed = ", ".join(map(repr, seen[:5])) + (", …" if len(seen) > 5 else "")
        raise InputFileError(f"{name!r} holds no conversations in its JSON files {listed}; {_expected()}")
    if len(entries) > 1:
        raise InputFileError(f"{name!r} holds files in several formats; choose one of {', '.join(entries)}")
    ((found, some),) = entries.items()
    return Foreign(name, found, _without_doubles(name, some))


def _parsed(name: str, text: str) -> Document:
    if text.lstrip().startswith("<"):
        raise InputFileError(
            f"{name!r} is a web page; choose JSON when you export, and import the JSON file or the zip"
        )
    return parsed(name, text)


def _format_of(document: Document) -> str:
    for name, one in _FORMATS.items():
        if one.fits(document):
            return name
    raise InputFileError(f"{document.name!r} {_looks_like(document.whole)}; {_expected()}")


def _in_archive(document: Document) -> str | None:
    """Return the format of a file in an archive: only exports are archives, which hold other lists, too."""
    return next((name for name in EXPORTS if _FORMATS[name].fits(document)), None)


def _check(document: Document, format: str) -> None:
    if format not in LISTS and not _FORMATS[format].fits(document):
        raise InputFileError(
            f"{document.name!r} does not have the format {format!r}: it {_looks_like(document.whole)}, "
            f"and not {_FORMATS[format].what}"
        )


def _expected() -> str:
    return "expected " + ", ".join(one.what for one in _FORMATS.values())


def _looks_like(whole: Any) -> str:
    """Return what a JSON value is, in words."""
    if isinstance(whole, list) and whole:
        return f"holds a list of {len(whole):,}, the first of which is {_kind(whole[0])}"
    return f"holds {_kind(whole)}"


def _kind(value: Any) -> str:
    if not isinstance(value, dict):
        return short(value)
    keys = ", ".join(repr(key) for key in list(value)[:5]) + (", …" if len(value) > 5 else "")
    return f"an object with the fields {keys}" if value else "an empty object"


def _without_doubles(name: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return the conversations; `InputFileError` if two have the same id."""
    found = {entry.id: entry for entry in entries}
    if len(found) < len(entries):
        raise InputFileError(f"{name!r}: two of its {len(entries)} conversations have the same id; export it again")
    return list(entries)


# Exports of chats


def _chats(whole: Any) -> list[Any]:
    return whole if isinstance(whole, list) else [whole]


def _are_chats(field: str) -> Callable[[Document], bool]:
    """Return whether a document is a list of chats, or one, whose messages are in a field of this name."""

    def fits(document: Document) -> bool:
        chats = _chats(document.whole)
        return bool(chats) and all(isinstance(one, dict) and field in one for one in chats)

    return fits


def _read_chats(
    ids: Sequence[str], title: str, read: Callable[[Mapping[str, Any], str], Conversation]
) -> Callable[[Document], list[Entry]]:
    """Return a reader of a list of chats; `ids` and `title` are the fields that hold a chat's id and title."""

    def entry(document: Document, number: int, chat: Mapping[str, Any]) -> Entry:
        named = (chat[key] for key in ids if isinstance(chat.get(key), str) and chat[key])
        id_, titled = next(named, f"conversation-{number}"), chat.get(title)
        location = f"{document.name!r}, conversation {number}"
        return Entry(id_, titled if isinstance(titled, str) else "", partial(_read, location, read, chat, id_))

    return lambda document: [entry(document, *one) for one in enumerate(_chats(document.whole), 1)]


def _read(location: str, read: Callable[[Any, str], Conversation], conversation: Any, id_: str) -> Conversation:
    try:
        return read(conversation, id_)
    except (LineError, RecursionError) as error:
        raise InputFileError(f"{location}: {error}") from None


def _takeout(document: Document) -> list[Entry]:
    try:
        sessions = takeout_sessions(document.whole)
    except LineError as error:
        raise InputFileError(f"{document.name!r}, {error}") from None
    read = partial(_read, repr(document.name), read_takeout)
    return [Entry(id_, some[0].text[:60], partial(read, some, id_)) for id_, some in sessions.items()]


# Lists of messages


def _messages(document: Document) -> list[Entry]:
    conversation = list_of(messages_of(document))
    return [Entry("", "", lambda: conversation)]


def _is_message_list(document: Document) -> bool:
    whole = document.whole
    if isinstance(whole, dict):
        return "role" in whole or "messages" in whole
    return isinstance(whole, list) and all(isinstance(one, list) or _has_role(one) for one in whole[:1])


def _has_role(one: Any) -> bool:
    return isinstance(one, dict) and ("role" in one or "messages" in one)


def _is_of_anthropic(document: Document) -> bool:
    """Return whether there is a system prompt beside the messages, or a message that only this API has."""
    whole = document.whole
    return bool(isinstance(whole, dict) and whole.get("system") and "messages" in whole) or any(
        is_anthropic(entry) for _, entry in document.entries
    )


_FORMATS: Mapping[str, _Format] = {
    "chatgpt": _Format(
        "ChatGPT's conversations.json or zip",
        _are_chats("mapping"),
        _read_chats(("conversation_id", "id"), "title", read_chatgpt),
    ),
    "claude": _Format(
        "Claude.ai's conversations.json or zip",
        _are_chats("chat_messages"),
        _read_chats(("uuid",), "name", read_claude),
    ),
    "gemini": _Format(
        "Google Takeout's MyActivity.json or zip of Gemini", lambda document: is_takeout(document.whole), _takeout
    ),
    "anthropic": _Format("messages of the Anthropic API", _is_of_anthropic, _messages),
    "openai": _Format('messages in the OpenAI format: [{"role": "user", "content": "…"}]', _is_message_list, _messages),
}
"""Name -> format, in the order in which they are tried: each fits nothing that an earlier one fits."""

FORMATS = tuple(_FORMATS)
"""The names of the formats."""

EXPORTS = ("chatgpt", "claude", "gemini")
"""Formats that are found in archives."""

LISTS = ("anthropic", "openai")
"""Formats that share their simplest form, so that either can be chosen for it."""
