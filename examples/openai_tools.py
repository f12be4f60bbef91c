"""A loop of your own with OpenAI's client: tools, a system prompt, and a memory that outlives the program.

With the real API: `OpenAI()` as the client, without `ChatServer`, and a model's name and its `max_tokens`.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from openai import OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam

from shared_core import InfiniteMemory, Message, ToolCall
from shared_core.testing.chat_server import ChatServer, quote

MODEL = "gpt-4o-mini"
TOOLS: list[ChatCompletionFunctionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a town.",
            "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
        },
    }
]


def weather(town: str) -> str:
    """Return the weather in a town."""
    return f"In {town} the weather is sunny, 18 degrees."


def answer(client: OpenAI, memory: InfiniteMemory, question: str) -> str:
    """Answer a question, calling tools as often as the model wants, and store everything that is said."""
    memory.add({"role": "user", "content": question})
    while True:
        context = memory.context(tools=TOOLS)
        completion = client.chat.completions.create(model=MODEL, messages=context.to_openai(), tools=TOOLS)
        reply = completion.choices[0].message
        memory.add(reply)
        if not reply.tool_calls:
            return reply.content or ""
        for call in reply.tool_calls:
            if call.type == "function":
                result = weather(**json.loads(call.function.arguments))
                memory.add({"role": "tool", "tool_call_id": call.id, "content": result})


def local_model(said: Sequence[Message]) -> Message:
    """Stand in for a model: ask for the weather once, and quote what it was shown."""
    question = said[-1].content.splitlines()[-1]
    if said[-1].role == "user" and "weather" in question:
        town = question.rstrip("?").split()[-1]
        return Message.assistant(tool_calls=(ToolCall(id="c1", name="weather", arguments=json.dumps({"town": town})),))
    return Message.assistant(said[-1].content) if said[-1].role == "tool" else quote(said)


def run(path: Path, client: OpenAI, questions: Sequence[str]) -> None:
    """Talk, as one run of a program would."""
    with InfiniteMemory(path, system="You are brief.", max_tokens=1000) as memory:
        for question in questions:
            print(f"> {question}\n{answer(client, memory, question)}")
        print(f"({len(memory.messages())} messages are stored)\n")


def main() -> None:
    """Run the program twice on one file: the second run knows what was said in the first."""
    with tempfile.TemporaryDirectory() as folder, ChatServer(local_model) as server:
        path = Path(folder) / "chat.db"
        with OpenAI(base_url=server.url, api_key="none") as client:
            run(path, client, ["My locker code is 4471.", "How is the weather in Porto?"])
            with InfiniteMemory(path) as memory:
                memory.add([{"role": "user", "content": f"Day {day} was dry and sunny."} for day in range(200)])
            run(path, client, ["What is my locker code?"])
        sent = server.requests[-1]["messages"]
        print(f"the last prompt holds {len(sent)} messages, and the first of them is {sent[0]}")


if __name__ == "__main__":
    main()
