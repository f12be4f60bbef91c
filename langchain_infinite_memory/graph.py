"""LangGraph: the conversation that a run belongs to, and a node for graphs of one's own."""

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda
from langgraph.config import get_config
from langgraph.runtime import Runtime, get_runtime

from langchain_infinite_memory.settings import memory_settings
from langchain_infinite_memory.threads import Thread, ThreadMemory, ThreadPrompt
from shared_core.pool import SessionPool
from shared_core.prompt.context import ContextReport
from shared_core.store import Store

__all__ = ["infinite_memory_node"]

CHECKPOINTER = "__pregel_checkpointer"
"""The entry of LangGraph's configuration that holds the run's checkpointer."""

logger = logging.getLogger("langchain_infinite_memory")


@dataclass
class ThreadResolver:
    """Finds the thread of a run.

    Args:
        session_id: the session of all runs; None: the run's `thread_id`, else its `session_id`, else one that belongs
            to this object.
        user_key: the name of the user's id in the runtime context, else in the configuration.
    """

    session_id: str | None = None
    user_key: str = "user_id"
    _own: str = field(default_factory=lambda: f"anonymous-{uuid.uuid4().hex}", init=False)
    _warned: bool = field(default=False, init=False)

    def resolve(self, runtime: Runtime[Any] | None) -> Thread:
        """Return the thread of the current run."""
        configurable = _configurable()
        named = (self.session_id, configurable.get("thread_id"), _thread_id(runtime), configurable.get("session_id"))
        session = next((name for name in named if name is not None and name != ""), None)
        session = self._anonymous() if session is None else session
        users = (_entry(getattr(runtime, "context", None), self.user_key), configurable.get(self.user_key))
        user = next((name for name in users if name is not None and name != ""), None)
        stable = configurable.get(CHECKPOINTER) is not None
        return Thread(str(session), None if user is None else str(user), stable)

    def _anonymous(self) -> str:
        if not self._warned:
            self._warned = True
            logger.warning(
                "a run names no session; all such runs share one, which is lost with this object: pass session_id=, "
                'or invoke with {"configurable": {"thread_id": ...}}'
            )
        return self._own


def _configurable() -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = get_config().get("configurable") or {}
    except RuntimeError:  # not inside a run
        return {}
    return found


def _thread_id(runtime: Runtime[Any] | None) -> Any:
    # LangGraph before 1.2 has no such attribute.
    return getattr(getattr(runtime, "execution_info", None), "thread_id", None)


def _entry(context: Any, key: str) -> Any:
    return context.get(key) if isinstance(context, Mapping) else getattr(context, key, None)


def infinite_memory_node(
    store: str | Path | Store | SessionPool | None = None, *, session_id: str | None = None, user_key: str = "user_id",
    messages_key: str = "messages", output_key: str = "llm_input_messages",
    on_report: Callable[[ContextReport], None] | None = None, **settings: Any,
) -> RunnableLambda[Mapping[str, Any], dict[str, list[BaseMessage]]]:  # fmt: skip
    """Return a node, or `pre_model_hook`, that stores a graph's messages and writes the prompt beside them.

    System messages at the beginning of the list are sent and charged, but not stored. The model's answer is stored when
    the node sees it the next time.

    Args:
        store: a path, a `Store` or a `SessionPool`; None: in memory.
        session_id: the session of all runs; None: the run's `thread_id`, else its `session_id`.
        user_key: the name of the user's id in the runtime context, else in the configuration.
        messages_key: the key of the messages in the state.
        output_key: the key under which the prompt is returned.
        on_report: called with the report on each prompt.
        settings: as for `InfiniteMemoryMiddleware`.

    Raises:
        TypeError, ValueError: an argument is unknown or out of range.
        StoreError: the store cannot be opened.
    """
    pool = store if isinstance(store, SessionPool) else SessionPool(store, **memory_settings(**settings))
    memories, threads = ThreadMemory(pool), ThreadResolver(session_id, user_key)

    def prompt(state: Mapping[str, Any]) -> dict[str, list[BaseMessage]]:
        return update(memories.prompt(threads.resolve(_runtime()), state[messages_key]))

    async def aprompt(state: Mapping[str, Any]) -> dict[str, list[BaseMessage]]:
        return update(await memories.aprompt(threads.resolve(_runtime()), state[messages_key]))

    def update(built: ThreadPrompt) -> dict[str, list[BaseMessage]]:
        if on_report is not None:
            on_report(built.report)
        return {output_key: built.messages}

    return RunnableLambda(prompt, aprompt, name="infinite_memory")


def _runtime() -> Runtime[Any] | None:
    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # not inside a graph
        return None
