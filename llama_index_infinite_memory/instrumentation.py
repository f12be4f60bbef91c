"""What was recalled for a prompt, told to LlamaIndex's instrumentation as what a retriever found."""

from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # not marked as exported
from llama_index.core.instrumentation.event_handlers import NullEventHandler
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.schema import NodeWithScore, TextNode

from shared_core.prompt.context import ContextReport
from shared_core.prompt.hits import Kind

dispatcher = get_dispatcher("llama_index_infinite_memory")


def report_recall(question: str, report: ContextReport) -> None:
    """Report the messages that were recalled, with their scores, if somebody listens."""
    if not _is_heard():
        return
    recalled = [line for line in report.included if line.kind is Kind.RECALLED and line.id is not None]
    nodes = [NodeWithScore(node=TextNode(id_=str(line.id), text=line.text), score=line.score) for line in recalled]
    dispatcher.event(RetrievalStartEvent(str_or_query_bundle=question))
    dispatcher.event(RetrievalEndEvent(str_or_query_bundle=question, nodes=nodes))


def _is_heard() -> bool:
    chain = [dispatcher]
    while chain[-1].propagate:
        chain.append(chain[-1].parent)
    return any(not isinstance(handler, NullEventHandler) for one in chain for handler in one.event_handlers)
