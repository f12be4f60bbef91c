"""From `RunnableWithMessageHistory` and `trim_messages`: in two steps, each of which works by itself.

Run it from the repository: `python examples/migration/message_history.py`. It needs no network and no key. LangChain
warns that `RunnableWithMessageHistory` is deprecated. With a real model: that in place of `MODEL`, and a path in place
of None.
"""

from operator import itemgetter

from langchain_core.chat_history import BaseChatMessageHistory, InMemoryChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory

from langchain_infinite_memory import prune_messages, session_factory, with_infinite_memory

QUESTION = {"question": "What is my locker code?"}
ALICE: RunnableConfig = {"configurable": {"session_id": "alice"}}
BUDGET = 1000


def old_messages() -> list[BaseMessage]:
    """Return a chat in which something was said 200 messages ago."""
    messages: list[BaseMessage] = [HumanMessage("My locker code is 4471."), AIMessage("Noted.")]
    for day in range(100):
        messages += [HumanMessage(f"Day {day}: it rained, and then the sun shone."), AIMessage("A day like others.")]
    return messages


def answer(prompt: PromptValue) -> AIMessage:
    """Say whether the code stands in the prompt; stands for your model."""
    return AIMessage("4471" if any("4471" in message.text for message in prompt.to_messages()) else "I do not know")


PROMPT = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])
MODEL = RunnableLambda(answer)


def before() -> str:
    """What you have: the newest messages that fit, and nothing else."""
    trimmed = RunnablePassthrough.assign(
        history=itemgetter("history")
        | trim_messages(
            max_tokens=BUDGET, token_counter=count_tokens_approximately, start_on="human", include_system=True
        )
    )
    store = InMemoryChatMessageHistory(messages=old_messages())

    def get_session_history(session_id: str) -> BaseChatMessageHistory:
        return store

    chain = RunnableWithMessageHistory(
        trimmed | PROMPT | MODEL, get_session_history, input_messages_key="question", history_messages_key="history"
    )
    return str(chain.invoke(QUESTION, ALICE).text)


def first_step() -> str:
    """Exchange the store and the trimming, and leave the chain as it is."""
    pruned = RunnablePassthrough.assign(
        history=lambda given: prune_messages(
            given["history"], max_tokens=BUDGET, token_counter="approximate", query=given["question"]
        )
    )
    histories = session_factory(None, window=False)  # your chain chooses what fits, so it is given everything
    histories("alice").add_messages(old_messages())
    chain = RunnableWithMessageHistory(
        pruned | PROMPT | MODEL, histories, input_messages_key="question", history_messages_key="history"
    )
    return str(chain.invoke(QUESTION, ALICE).text)


def second_step() -> str:
    """Let one wrapper store, choose and trim: only what fits is put into the chain."""
    chain = with_infinite_memory(
        PROMPT | MODEL,
        store=None,
        input_key="question",
        history_key="history",
        max_tokens=BUDGET + 500,  # 500 are kept free for the reply
    )
    chain.history("alice").add_messages(old_messages())
    return str(chain.invoke(QUESTION, ALICE).text)


def main() -> None:
    """Ask all three for what was said 200 messages ago."""
    print(f"before: {before()}")
    print(f"prune_messages and session_factory: {first_step()}")
    print(f"with_infinite_memory: {second_step()}")


if __name__ == "__main__":
    main()
