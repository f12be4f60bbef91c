"""recall_run: the recall of a prompt as a retriever run, which traces and event streams show."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import ensure_config
from langchain_core.runnables.config import get_async_callback_manager_for_config, get_callback_manager_for_config
from langchain_core.tracers import BaseTracer

from shared_core.prompt.hits import Kind
from shared_core.prompt.report import ContextReport

NAME = "infinite_memory"
"""The name of the run."""


@dataclass(slots=True)
class Recall:
    """What a run reports at its end.

    Attributes:
        report: the report on the prompt, which the caller sets; None: nothing was recalled.
    """

    report: ContextReport | None = None

    @property
    def documents(self) -> list[Document]:
        """The messages that the prompt recalls, in the order of the report."""
        lines = self.report.included if self.report is not None else ()
        return [
            Document(line.text, id=line.id, metadata={
                "message_id": line.id, "role": line.role, "time": line.at.isoformat() if line.at else None,
                "score": line.score,
            })
            for line in lines
            if line.kind is Kind.RECALLED and line.id is not None
        ]  # fmt: skip

    @property
    def figures(self) -> dict[str, Any]:
        """What the report counts, for the metadata of the run."""
        report = self.report
        if report is None:
            return {}
        figures = {"tokens": report.total_tokens, "budget": report.budget, "recalled": len(self.documents)}
        return {f"{NAME}_{key}": value for key, value in {**figures, "degraded": len(report.degraded)}.items()}


@contextmanager
def recall_run(query: str) -> Iterator[Recall]:
    """Report a retriever run to the callbacks of the current run, as its child. What the caller's code raises, too."""
    recall = Recall()
    run = get_callback_manager_for_config(ensure_config()).on_retriever_start(None, query, name=NAME)
    try:
        yield recall
    except BaseException as error:  # reported, whatever it is, and raised again
        run.on_retriever_error(error)
        raise
    _add_metadata(run, recall)
    run.on_retriever_end(recall.documents)


@asynccontextmanager
async def arecall_run(query: str) -> AsyncIterator[Recall]:
    """Do what `recall_run` does with asynchronous callbacks."""
    recall = Recall()
    run = await get_async_callback_manager_for_config(ensure_config()).on_retriever_start(None, query, name=NAME)
    try:
        yield recall
    except BaseException as error:  # as above
        await run.on_retriever_error(error)
        raise
    _add_metadata(run, recall)
    await run.on_retriever_end(recall.documents)


def _add_metadata(run: Any, recall: Recall) -> None:
    """Add the figures to the metadata of a traced run; no callback takes metadata at the end."""
    for handler in run.handlers:
        if isinstance(handler, BaseTracer) and (traced := handler.run_map.get(str(run.run_id))) is not None:
            traced.extra.setdefault("metadata", {}).update(recall.figures)
