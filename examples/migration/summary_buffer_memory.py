"""From `ConversationSummaryBufferMemory`: old words come back as they were said, and no model is called to store them.

    memory = ConversationSummaryBufferMemory(llm=model, max_token_limit=1000)  # before
    chain = ConversationChain(llm=model, memory=memory)

The summary that there is goes on as a system message, which every prompt begins with.

Run it from the repository: `python examples/migration/summary_buffer_memory.py`. It needs no network and no key.
With a real model: `init_chat_model("openai:gpt-4o-mini")` in place of `EchoChatModel()`, and a path in place of None.
"""

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig

from langchain_infinite_memory import with_infinite_memory
from langchain_infinite_memory.testing import EchoChatModel

OLD_SUMMARY = "Alice plans a trip to Lisbon with two friends."  # memory.moving_summary_buffer
OLD_BUFFER = [HumanMessage("We are leaving on Friday."), AIMessage("Noted.")]  # memory.chat_memory.messages


def show(prompt: PromptValue) -> PromptValue:
    """Print how the prompt begins and ends, and pass it on."""
    messages = prompt.to_messages()
    print(f"[{messages[0].type}] {messages[0].text}\n…\n[{messages[-1].type}] {messages[-1].text}\n")
    return prompt


ALICE: RunnableConfig = {"configurable": {"session_id": "alice"}}


def main() -> None:
    """Take the summary and the buffer over, once, and go on for 200 messages."""
    model = EchoChatModel()
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{input}")])
    chain = with_infinite_memory(
        prompt | show | model,
        store=None,
        input_key="input",
        history_key="history",
        max_tokens=1500,
    )
    history = chain.history("alice")
    history.add_messages([SystemMessage(f"What was said before: {OLD_SUMMARY}"), *OLD_BUFFER])

    history.add_messages([HumanMessage("My seat is 14C."), AIMessage("Noted.")])
    for day in range(100):
        history.add_messages([HumanMessage(f"Day {day}: it rained."), AIMessage("A day like others.")])
    chain.invoke({"input": "Which seat is mine?"}, ALICE)


if __name__ == "__main__":
    main()
