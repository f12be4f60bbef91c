"""Chat engines over documents: what is retrieved goes to the model and never into the memory.

Run it from the repository: `python examples/llama_index_context.py`. It needs no network and no key. In your
program, the retriever is that of an index, and the model is a real one in place of `EchoLLM()`.
"""

from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from llama_index_infinite_memory.testing import EchoLLM

HANDBOOK = [
    "Refunds take five working days.",
    "Vouchers expire after a year.",
    "The shop is closed on Mondays.",
]


class Handbook(BaseRetriever):
    """Finds the sentence that shares most words with a question."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        words = set(query_bundle.query_str.lower().strip("?").split())
        best = max(HANDBOOK, key=lambda text: len(words & set(text.lower().strip(".").split())))
        return [NodeWithScore(node=TextNode(text=best), score=1.0)]


def main() -> None:
    """Ask two engines, one after the other, about the handbook and about what was said sixty turns ago."""
    model, retriever = EchoLLM(), Handbook()
    buffer = InfiniteChatMemoryBuffer.from_defaults(token_limit=600)  # store=path keeps it

    context = ContextChatEngine.from_defaults(retriever, llm=model, memory=buffer, system_prompt="Be brief.")
    context.chat("My customer number is 4471.")
    for day in range(30):
        context.chat(f"It rained on day {day}, and nothing else happened.")
    print(context.chat("How long do refunds take?"))
    print(context.chat("What is my customer number?"))

    condensing = CondensePlusContextChatEngine.from_defaults(retriever, llm=model, memory=buffer)
    print(condensing.chat("And when do vouchers expire?"))
    print(condensing.chat("What was my customer number again?"))

    stored = " ".join(str(message.content) for message in buffer.get_all() if message.role == "user")
    print(f"{len(buffer.get_all())} messages are stored, passages among the questions: {HANDBOOK[0] in stored}")
    buffer.close()


if __name__ == "__main__":
    main()
