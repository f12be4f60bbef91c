"""The framework-neutral engine of infinite-memory.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shared_core.aio import AsyncInfiniteMemory as AsyncInfiniteMemory
    from shared_core.base import Embedder as Embedder
    from shared_core.base import Fingerprint as Fingerprint
    from shared_core.base import Summarizer as Summarizer
    from shared_core.base import SummarizerModel as SummarizerModel
    from shared_core.base import TokenCounter as TokenCounter
    from shared_core.embedders import CallableEmbedder as CallableEmbedder
    from shared_core.embedders import OnnxEmbedder as OnnxEmbedder
    from shared_core.embedders import SentenceTransformerEmbedder as SentenceTransformerEmbedder
    from shared_core.embedders import StaticEmbedder as StaticEmbedder
    from shared_core.errors import AmbiguousReferenceError as AmbiguousReferenceError
    from shared_core.errors import BudgetError as BudgetError
    from shared_core.errors import DuplicateError as DuplicateError
    from shared_core.errors import EmbedderError as EmbedderError
    from shared_core.errors import EmbedderMismatchError as EmbedderMismatchError
    from shared_core.errors import InfiniteMemoryError as InfiniteMemoryError
    from shared_core.errors import InputFileError as InputFileError
    from shared_core.errors import MessageTooLargeError as MessageTooLargeError
    from shared_core.errors import MissingExtraError as MissingExtraError
    from shared_core.errors import StaleHeadError as StaleHeadError
    from shared_core.errors import StoreError as StoreError
    from shared_core.errors import UnknownReferenceError as UnknownReferenceError
    from shared_core.forget import ForgetResult as ForgetResult
    from shared_core.history import History as History
    from shared_core.lists import prune as prune
    from shared_core.lists import sliding_window as sliding_window
    from shared_core.memory import InfiniteMemory as InfiniteMemory
    from shared_core.messages import Grounding as Grounding
    from shared_core.messages import GroundingItem as GroundingItem
    from shared_core.messages import Message as Message
    from shared_core.messages import Payload as Payload
    from shared_core.messages import ToolCall as ToolCall
    from shared_core.pool import SessionPool as SessionPool
    from shared_core.prompt.context import Context as Context
    from shared_core.prompt.context import ContextReport as ContextReport
    from shared_core.prompt.context import Kind as Kind
    from shared_core.prompt.context import Reason as Reason
    from shared_core.prompt.context import ReportLine as ReportLine
    from shared_core.prompt.template import RecallTemplate as RecallTemplate
    from shared_core.recall.ranking import ScoredMessage as ScoredMessage
    from shared_core.records import Branch as Branch
    from shared_core.records import Summary as Summary
    from shared_core.sharing.importer import ImportResult as ImportResult
    from shared_core.sharing.redact import drop_grounding as drop_grounding
    from shared_core.sharing.redact import drop_tool_results as drop_tool_results
    from shared_core.sharing.redact import replace_names as replace_names
    from shared_core.sharing.whole import export_sessions as export_sessions
    from shared_core.sharing.whole import import_sessions as import_sessions
    from shared_core.store import Store as Store
    from shared_core.stores import SQLiteStore as SQLiteStore
    from shared_core.summaries.template import SummaryTemplate as SummaryTemplate
    from shared_core.tokens import CallableCounter as CallableCounter
    from shared_core.tokens import CharacterCounter as CharacterCounter
    from shared_core.tokens import ConservativeCounter as ConservativeCounter
    from shared_core.tokens import TiktokenCounter as TiktokenCounter
    from shared_core.tree.branches import Diff as Diff
    from shared_core.tree.branches import Moved as Moved
    from shared_core.tree.conflicts import Conflict as Conflict
    from shared_core.tree.copies import Picked as Picked
    from shared_core.tree.copies import Stash as Stash
    from shared_core.tree.log import LogEntry as LogEntry
    from shared_core.tree.merge import MergeResult as MergeResult

_HOMES = {
    "aio": ["AsyncInfiniteMemory"],
    "base": ["Embedder", "Fingerprint", "Summarizer", "SummarizerModel", "TokenCounter"],
    "embedders": ["CallableEmbedder", "OnnxEmbedder", "SentenceTransformerEmbedder", "StaticEmbedder"],
    "errors": [
        "AmbiguousReferenceError",
        "BudgetError",
        "DuplicateError",
        "EmbedderError",
        "EmbedderMismatchError",
        "InfiniteMemoryError",
        "InputFileError",
        "MessageTooLargeError",
        "MissingExtraError",
        "StaleHeadError",
        "StoreError",
        "UnknownReferenceError",
    ],
    "forget": ["ForgetResult"],
    "history": ["History"],
    "lists": ["prune", "sliding_window"],
    "memory": ["InfiniteMemory"],
    "messages": ["Grounding", "GroundingItem", "Message", "Payload", "ToolCall"],
    "pool": ["SessionPool"],
    "prompt.context": ["Context", "ContextReport", "Kind", "Reason", "ReportLine"],
    "prompt.template": ["RecallTemplate"],
    "recall.ranking": ["ScoredMessage"],
    "records": ["Branch", "Summary"],
    "sharing.importer": ["ImportResult"],
    "sharing.redact": ["drop_grounding", "drop_tool_results", "replace_names"],
    "sharing.whole": ["export_sessions", "import_sessions"],
    "store": ["Store"],
    "stores": ["SQLiteStore"],
    "summaries.template": ["SummaryTemplate"],
    "tokens": ["CallableCounter", "CharacterCounter", "ConservativeCounter", "TiktokenCounter"],
    "tree.branches": ["Diff", "Moved"],
    "tree.conflicts": ["Conflict"],
    "tree.copies": ["Picked", "Stash"],
    "tree.log": ["LogEntry"],
    "tree.merge": ["MergeResult"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
