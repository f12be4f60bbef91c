"""From `VectorMemory` (and `SimpleComposableMemory` with it): one buffer has the newest turns and those that match.

    vector_memory = VectorMemory.from_defaults(embed_model=embed_model, retriever_kwargs={"similarity_top_k": 1})
    memory = SimpleComposableMemory.from_defaults(primary_memory=buffer, secondary_memory_sources=[vector_memory])

Run it from the repository: `python examples/migration/llama_index_vector_memory.py`. It needs no network and no key.
"""

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer, SimpleComposableMemory

from llama_index_infinite_memory import InfiniteChatMemoryBuffer


def turn(question: str, answer: str) -> list[ChatMessage]:
    """Return an exchange."""
    return [ChatMessage(role="user", content=question), ChatMessage(role="assistant", content=answer)]


def main() -> None:
    """Store a fact and a hundred other turns, and ask for it: alone, and as a part of what there is already."""
    with InfiniteChatMemoryBuffer.from_defaults(token_limit=500, top_k=2) as memory:  # embed_model= takes yours
        memory.put_messages(turn("My favourite town is Lisbon.", "Noted."))
        for day in range(100):
            memory.put_messages(turn(f"Day {day}: it rained.", "A day like others."))

        sent = memory.get("Which town is my favourite?")
        print([message.content for message in sent[:2]], f"and {len(sent) - 2} more")
        for found in memory.memory.search("favourite town", 1):  # what VectorMemory.get returned
            print(f"{found.message.role}: {found.message.content}")

        primary = ChatMemoryBuffer.from_defaults(token_limit=200)
        composed = SimpleComposableMemory.from_defaults(primary_memory=primary, secondary_memory_sources=[memory])
        print("Lisbon" in str(composed.get("Which town is my favourite?")))


if __name__ == "__main__":
    main()
