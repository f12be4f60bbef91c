"""A process with a memory of its own: `chat_process.py FILE`, then a JSON list [verb, arguments] on each line of input.

Answers each line with what the verb returned, as JSON: ids of messages, texts of a prompt, the texts embedded so far,
or the name of an error.
"""

import json
import sys
from typing import Any

from shared_core import InfiniteMemory, Message
from shared_core.testing.hashing_embedder import HashingEmbedder


def answer(memory: InfiniteMemory, embedder: HashingEmbedder, verb: str, arguments: dict[str, Any]) -> Any:
    if verb == "add":
        return [message.turn_id for message in memory.add(Message.model_validate(arguments))]
    if verb == "context":
        return [message.content for message in memory.context(**arguments).messages]
    if verb == "search":
        return [hit.message.id for hit in memory.search(**arguments)]
    if verb == "messages":
        return [message.id for message in memory.messages()]
    if verb == "forget":
        return memory.forget(**arguments).to_dict()
    if verb == "index":
        memory.index()
        return embedder.documents
    raise ValueError(verb)


def main(path: str) -> None:
    embedder = HashingEmbedder()
    with InfiniteMemory(path, embedder=embedder, max_tokens=300, reserve_tokens=50) as memory:
        for line in sys.stdin:
            verb, arguments = json.loads(line)
            try:
                said = answer(memory, embedder, verb, arguments)
            except Exception as error:
                said = type(error).__name__
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
