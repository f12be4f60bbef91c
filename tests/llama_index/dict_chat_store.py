"""A store for LlamaIndex's Memory that keeps messages in a dictionary: its own leaves a connection open."""

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from pydantic import PrivateAttr

__all__ = ["DictStore"]

Rows = list[tuple[MessageStatus, ChatMessage]]


class DictStore(AsyncDBChatStore):
    """All that Memory asks for, in this process."""

    _rows: dict[str, Rows] = PrivateAttr(default_factory=dict)

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        found = [row for known, row in self._rows.get(key, []) if status in (None, known)]
        return [message.model_copy(deep=True) for message in found[offset or 0 :][:limit]]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        return len(await self.get_messages(key, status))

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        self._rows.setdefault(key, []).extend((status, message.model_copy(deep=True)) for message in messages)

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        self._rows[key] = []
        await self.add_messages(key, messages, status)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        return self._rows[key].pop(idx)[1]

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        self._rows[key] = [row for row in self._rows.get(key, []) if status not in (None, row[0])]

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        gone, self._rows[key] = self._rows[key][:n], self._rows[key][n:]
        return [message for _, message in gone]

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        active = [place for place, row in enumerate(self._rows[key]) if row[0] is MessageStatus.ACTIVE][:n]
        for place in active:
            self._rows[key][place] = (MessageStatus.ARCHIVED, self._rows[key][place][1])
        return [self._rows[key][place][1] for place in active]

    async def get_keys(self) -> list[str]:
        return list(self._rows)
