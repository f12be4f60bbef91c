"""From `VectorStoreRetrieverMemory`: the messages that match, with who said them, when, in which session.

    memory = VectorStoreRetrieverMemory(retriever=store.as_retriever(search_kwargs={"k": 2}))  # before
    memory.save_context({"input": "..."}, {"output": "..."})
    memory.load_memory_variables({"input": "..."})["history"]

Run it from the repository: `python examples/migration/vector_store_memory.py`. It needs no network and no key.
No model is in it; in your program, a path in place of None, and `embeddings=` with those that you have, if you like.
"""

from langchain_core.messages import AIMessage, HumanMessage

from langchain_infinite_memory import HistoryRetriever, session_factory


def main() -> None:
    """Store two people's exchanges, and find in one's what was said 200 messages ago."""
    histories = session_factory(None, max_tokens=1500)
    for name, place in (("alice", "Lisbon"), ("bob", "Oslo")):
        history = histories(name)
        history.add_messages([HumanMessage(f"My favourite town is {place}."), AIMessage("Noted.")])  # save_context
        for day in range(100):
            history.add_messages([HumanMessage(f"Day {day}: it rained."), AIMessage("A day like others.")])

    retriever = HistoryRetriever(pool=histories.pool, session_id="alice", k=2)
    for document in retriever.invoke("Which town is my favourite?"):  # load_memory_variables
        print(f"{document.metadata['role']}: {document.page_content}")

    # With the newest turns around it, within a budget, as a prompt:
    print(histories("alice").window("Which town is my favourite?")[-1].text)
    histories.close()


if __name__ == "__main__":
    main()
