"""A node for graphs of one's own: the prompt that fits, beside the untouched messages."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda
from langgraph.runtime import Runtime, get_runtime

from langchain_infinite_memory.graph import Threads
from langchain_infinite_memory.settings import engine_settings
from langchain_infinite_memory.threads import HistoryView, View
from shared_core.pool import SessionPool
from shared_core.prompt.context import ContextReport
from shared_core.store import Store

__all__ = ["infinite_memory_node"]


def infinite_memory_node(
    store: str | Path | Store | SessionPool | None = None, *, session_id: str | None = None, user_key: str = "user_id",
    messages_key: str = "messages", output_key: str = "llm_input_messages",
    on_report: Callable[[ContextReport], None] | None = None, **settings: Any,
) -> RunnableLambda[Mapping[str, Any], dict[str, list[BaseMessage]]]:  # fmt: skip
    """Return a node, or `pre_model_hook`, that stores a graph's messages and puts the prompt beside them.

    System messages at the beginning of the list are sent and charged, and not stored. What the model answers is stored
    when the node sees it next.

    Args:
        store: a path, a `Store` or a `SessionPool`; None: in memory.
        session_id: the session of all runs; None: the run's `thread_id`, else its `session_id`.
        user_key: the name of the user's id in the runtime context, else in the configuration.
        messages_key: where the state has its messages.
        output_key: where the prompt goes.
        on_report: called with the report on each prompt.
        settings: as for `InfiniteMemoryMiddleware`.

    Raises:
        TypeError, ValueError: an argument is unknown or out of range.
        StoreError: the store cannot be opened.
    """
    pool = store if isinstance(store, SessionPool) else SessionPool(store, **engine_settings(**settings))
    views, threads = HistoryView(pool), Threads(session_id, user_key)

    def prompt(state: Mapping[str, Any]) -> dict[str, list[BaseMessage]]:
        return shown(views.view(threads.of(_runtime()), state[messages_key]))

    async def aprompt(state: Mapping[str, Any]) -> dict[str, list[BaseMessage]]:
        return shown(await views.aview(threads.of(_runtime()), state[messages_key]))

    def shown(view: View) -> dict[str, list[BaseMessage]]:
        if on_report is not None:
            on_report(view.report)
        return {output_key: view.messages}

    return RunnableLambda(prompt, aprompt, name="infinite_memory")


def _runtime() -> Runtime[Any] | None:
    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # not inside a graph
        return None
