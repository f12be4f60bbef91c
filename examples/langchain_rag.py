"""Retrieved documents as grounding: sent with the question they were retrieved for, and with no later one.

Run it from the repository: `python examples/langchain_rag.py`. It needs no network and no key, and leaves no file.
With a real model: `init_chat_model("openai:gpt-4o-mini")` in place of `EchoChatModel()`, and a path in place of None.
"""

import re
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig, RunnablePassthrough

from langchain_infinite_memory import with_infinite_memory
from langchain_infinite_memory.testing import EchoChatModel

HANDBOOK = [
    Document("Refunds take five working days."),
    Document("Refunds go back to the card that was used."),
    Document("Vouchers are valid for a year."),
    Document("The shop is closed on Mondays."),
]


def retrieve(values: dict[str, Any]) -> list[Document]:
    """Return the passages that share a word with the question; stands for your retriever."""
    words = set(re.findall(r"[a-z]{6,}", values["question"].lower()))
    return [passage for passage in HANDBOOK if words & set(re.findall(r"[a-z]{6,}", passage.page_content.lower()))]


def show(prompt: PromptValue) -> PromptValue:
    """Print what the model is sent, and pass it on."""
    for message in prompt.to_messages():
        print(f"[{message.type}] {message.text}")
    print()
    return prompt


def main() -> None:
    """Ask two questions, and look at both prompts and at what is stored."""
    model = EchoChatModel()
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Answer from the handbook."), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    remembering = with_infinite_memory(
        prompt | show | model,
        store=None,
        input_key="question",
        history_key="history",
        documents_key="documents",
        max_tokens=2000,
    )
    chain = RunnablePassthrough.assign(documents=retrieve) | remembering
    customer: RunnableConfig = {"configurable": {"session_id": "customer"}}

    print("--- the first prompt")
    chain.invoke({"question": "How long do refunds take?"}, customer)
    print("--- the second prompt: other passages, and none of the first")
    chain.invoke({"question": "Do vouchers expire?"}, customer)

    print("--- what is stored: the question as typed, the passages apart")
    asked = remembering.history("customer").messages[0]
    print(asked.text)
    print(asked.additional_kwargs["grounding"])
    remembering.close()


if __name__ == "__main__":
    main()
