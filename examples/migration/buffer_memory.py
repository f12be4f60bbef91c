"""From `ConversationBufferMemory` (and `…WindowMemory`, `…TokenBufferMemory`): everything is kept, what fits is sent.

    memory = ConversationBufferMemory(return_messages=True)                   # before
    chain = ConversationChain(llm=model, memory=memory, prompt=prompt)
    chain.predict(input="...")

Run it from the repository: `python examples/migration/buffer_memory.py`. It needs no network and no key.
With a real model: `init_chat_model("openai:gpt-4o-mini")` in place of `EchoChatModel()`, and a path in place of None.
"""

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig

from langchain_infinite_memory import with_infinite_memory
from langchain_infinite_memory.testing import EchoChatModel


def old_messages() -> list[BaseMessage]:
    """Return what the old memory holds: `memory.chat_memory.messages`."""
    messages: list[BaseMessage] = [HumanMessage("My locker code is 4471."), AIMessage("Noted.")]
    for day in range(100):
        messages += [HumanMessage(f"Day {day}: it rained, and then the sun shone."), AIMessage("A day like others.")]
    return messages


ALICE: RunnableConfig = {"configurable": {"session_id": "alice"}}


def main() -> None:
    """Take the old messages over, once, and go on."""
    model = EchoChatModel()
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{input}")])
    chain = with_infinite_memory(
        prompt | model,
        store=None,
        input_key="input",
        history_key="history",
        max_tokens=1500,
        on_report=lambda report, run: print(f"sent: {report.total_tokens} of {report.budget} tokens"),
    )
    history = chain.history("alice")
    history.add_messages(old_messages())

    print(chain.invoke({"input": "What is my locker code?"}, ALICE).text)
    print(f"stored: {len(history.messages)} messages")


if __name__ == "__main__":
    main()
