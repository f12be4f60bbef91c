"""Whose conversation a run is: the session and the user, from the arguments or from the run's configuration."""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.config import get_config
from langgraph.runtime import Runtime

from langchain_infinite_memory.threads import Thread

__all__ = ["Threads"]

CHECKPOINTER = "__pregel_checkpointer"
"""Where LangGraph's configuration has the checkpointer of the run."""

logger = logging.getLogger("langchain_infinite_memory")


@dataclass
class Threads:
    """Finds the conversation of a run.

    Args:
        session_id: of all runs; None: the run's `thread_id`, else its `session_id`, else one of this object's own.
        user_key: the name of the user's id in the runtime context, else in the configuration.
    """

    session_id: str | None = None
    user_key: str = "user_id"
    _own: str = field(default_factory=lambda: f"anonymous-{uuid.uuid4().hex}", init=False)
    _warned: bool = field(default=False, init=False)

    def of(self, runtime: Runtime[Any] | None) -> Thread:
        """Return whose conversation the current run is."""
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
                "a run names no session, so that all such runs share one that ends with this object: pass session_id=, "
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
