"""infinite_memory_node: the prompt beside the messages of a graph of one's own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda

from langchain_infinite_memory.followed_lists import read_list
from langchain_infinite_memory.identity import (
    OnReport,
    Removed,
    SessionName,
    Thread,
    ThreadResolver,
    check_report,
    report,
)
from langchain_infinite_memory.sessions import open_pool
from langchain_infinite_memory.threads import ModelInput, ThreadMemory, ThreadPrompt
from shared_core.pool import SessionPool
from shared_core.store import Store

__all__ = ["infinite_memory_node"]


def infinite_memory_node(
    store: str | Path | Store | SessionPool | None = None, *, session_id: SessionName = None,
    user_key: str = "user_id", removed: Removed | None = None, share_with_subgraphs: bool = False,
    messages_key: str = "messages", output_key: str = "llm_input_messages", on_report: OnReport = None, **settings: Any,
) -> RunnableLambda[Mapping[str, Any], dict[str, list[BaseMessage]]]:  # fmt: skip
    """Return a node, or `pre_model_hook`, that stores a graph's messages and writes the prompt beside them.

    System messages at the beginning of the list are sent and charged, but not stored. The model's answer is stored when
    the node sees it the next time. That takes a checkpointer, and one that lasts if the last answer is to outlive the
    process; without one, an answer is never stored unless the caller sends the whole list.

    Args:
        store: a path, a `Store` or a `SessionPool`; None: in memory.
        session_id: as for `InfiniteMemoryMiddleware`.
        user_key: as for `InfiniteMemoryMiddleware`.
        removed: as for `InfiniteMemoryMiddleware`.
        share_with_subgraphs: as for `InfiniteMemoryMiddleware`.
        messages_key: the key of the messages in the state.
        output_key: the key under which the prompt is returned.
        on_report: called with the report on each prompt, and the ids of the run.
        settings: as for `InfiniteMemoryMiddleware`; beside a `SessionPool`, `max_tokens` alone.

    Raises:
        TypeError, ValueError: an argument is unknown or out of range.
        StoreError: the store cannot be opened.
    """
    if "recall_tool" in settings:
        raise TypeError("recall_tool: a node brings no tool; recall_tool(store) makes one for your model")
    check_report(on_report)
    limit = settings.pop("max_tokens", None) if isinstance(store, SessionPool) else None
    # A question that does not fit must not be left out, nor what a tool has just returned.
    given = settings if isinstance(store, SessionPool) else {"on_overflow": "raise", **settings}
    memories = ThreadMemory(open_pool(store, **given))
    threads = ThreadResolver(session_id, user_key, removed, share_with_subgraphs)

    def prompt(state: Mapping[str, Any]) -> dict[str, list[BaseMessage]]:
        messages = state[messages_key]
        thread = memories.owned(threads.resolve(first=read_list(messages).first), messages)
        return update(thread, memories.prompt(thread, messages, ModelInput(messages, max_tokens=limit)))

    async def aprompt(state: Mapping[str, Any]) -> dict[str, list[BaseMessage]]:
        messages = state[messages_key]
        named = threads.resolve(first=read_list(messages).first)
        thread = await memories.call(memories.owned, named, messages)
        return update(thread, await memories.aprompt(thread, messages, ModelInput(messages, max_tokens=limit)))

    def update(thread: Thread, built: ThreadPrompt) -> dict[str, list[BaseMessage]]:
        report(on_report, built.report, thread)
        return {output_key: built.messages}

    return RunnableLambda(prompt, aprompt, name="infinite_memory")
