# The public names, each with its home; errors, results, embedders, tokens and redact hold more.

from .aio import AsyncInfiniteMemory as AsyncInfiniteMemory
from .errors import BudgetError as BudgetError
from .errors import DuplicateError as DuplicateError
from .errors import EmbedderError as EmbedderError
from .errors import InfiniteMemoryError as InfiniteMemoryError
from .errors import StoreError as StoreError
from .errors import UnknownReferenceError as UnknownReferenceError
from .index.cache import IndexCache as IndexCache
from .lists import prune as prune
from .lists import sliding_window as sliding_window
from .memory import InfiniteMemory as InfiniteMemory
from .messages import Grounding as Grounding
from .messages import GroundingItem as GroundingItem
from .messages import Message as Message
from .messages import ToolCall as ToolCall
from .plugins.base import Embedder as Embedder
from .plugins.base import Fingerprint as Fingerprint
from .plugins.base import Reranker as Reranker
from .plugins.base import Summarizer as Summarizer
from .plugins.base import SummarizerModel as SummarizerModel
from .plugins.base import TokenCounter as TokenCounter
from .plugins.base import Vectors as Vectors
from .pool import SessionPool as SessionPool
from .prompt.context import Context as Context
from .prompt.hits import Hit as Hit
from .prompt.report import ContextReport as ContextReport
from .prompt.template import RecallTemplate as RecallTemplate
from .sharing.files import export_sessions as export_sessions
from .sharing.files import import_sessions as import_sessions
from .store import Store as Store
from .stores import PostgresStore as PostgresStore
from .stores import SQLiteStore as SQLiteStore

__all__: list[str]
__version__: str
