"""Read files of other programs. Their formats are recognized by content, without those programs' packages."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared_core.errors import InputFileError
from shared_core.messages import Message
from shared_core.sharing.format import Line, LineError
from shared_core.sharing.readers.chatgpt import chatgpt_lines, conversations, session_id_of
from shared_core.sharing.readers.frameworks import (
    is_langchain,
    is_simple_chat_store,
    langchain_entry,
    llama_index_entry,
)
from shared_core.sharing.readers.openai import entries_of, messages_of, parse_text, text_of

__all__ = ["Foreign", "read_foreign"]


@dataclass(frozen=True, slots=True)
class Foreign:
    """The content of another program's file.

    Attributes:
        name: the file.
        format: the name of its format.
        lists: session id -> messages, for sessions that are lists. The id is "" if the file names none.
        trees: session id -> conversation, for sessions that have branches.
    """

    name: str
    format: str
    lists: Mapping[str, list[Message]]
    trees: Mapping[str, Mapping[str, Any]]

    @property
    def sessions(self) -> list[str]:
        """The session ids, in order."""
        return [*self.lists, *self.trees]

    def lines(self, session_id: str) -> Iterator[Line]:
        """Yield a conversation with branches as lines of an export file."""
        number = list(self.trees).index(session_id) + 1
        return chatgpt_lines(self.name, self.trees[session_id], number)


def read_foreign(path: str | os.PathLike[str]) -> Foreign:
    """Return the content of a file.

    Args:
        path: ChatGPT's `conversations.json`, LangChain's messages as `messages_to_dict` writes them, a file of
            LlamaIndex's `SimpleChatStore`, or messages in the OpenAI format, JSON or JSONL.

    Raises:
        InputFileError: the file has none of these forms.
    """
    name, text = os.fspath(path), text_of(path)
    try:
        whole = parse_text(text)
    except LineError:
        return Foreign(name, "openai", {"": messages_of(name, entries_of(name, text))}, {})
    if found := conversations(whole):
        trees = {session_id_of(one, number): one for number, one in enumerate(found, 1)}
        if len(trees) < len(found):
            raise InputFileError(f"{name!r}: two of its {len(found)} conversations have the same id; export it again")
        return Foreign(name, "chatgpt", {}, trees)
    if is_langchain(whole):
        entries = ((f"message {number}", one) for number, one in enumerate(whole, 1))
        return Foreign(name, "langchain", {"": messages_of(name, entries, langchain_entry)}, {})
    if is_simple_chat_store(whole):
        return Foreign(name, "llama-index", dict(_keys(name, whole["store"])), {})
    return Foreign(name, "openai", {"": messages_of(name, entries_of(name, text))}, {})


def _keys(name: str, store: Mapping[str, Any]) -> Iterator[tuple[str, list[Message]]]:
    for key, messages in store.items():
        if not isinstance(messages, list):
            raise InputFileError(f"{name!r}: store[{key!r}] is not a list of messages; expected a SimpleChatStore")
        entries = ((f"store[{key!r}], message {number}", one) for number, one in enumerate(messages, 1))
        yield key, messages_of(name, entries, llama_index_entry)
