"""Can a side chat be shared, go on elsewhere, and come back?"""

from pathlib import Path

from shared_core import InfiniteMemory, Message
from tests.support.histories import texts

TALK = [
    Message.user("We write a parser for the import files."),
    Message.assistant("Fine, in which language?"),
    Message.user("Python, by hand, without a generator."),
    Message.assistant("Then begin with the tokenizer."),
]
DEBUGGING = [
    Message.user("Why does the parser hang on line seven?"),
    Message.assistant("Print the position after each token."),
    Message.user("It stops moving at a tabulator."),
    Message.assistant("The tokenizer never consumes tabulators: add them to the set of blanks."),
]


def debugged(path: Path) -> InfiniteMemory:
    memory = InfiniteMemory(path, session_id="parser", max_tokens=2_000)
    memory.add(TALK)
    memory.fork("debug")
    memory.add(DEBUGGING)
    memory.checkout("main")
    return memory


def test_the_side_chat_is_kept_and_shared_and_goes_on_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "debugging.jsonl"
    with debugged(tmp_path / "mine.db") as memory:
        memory.merge("debug", "squash")
        memory.checkout("debug")
        memory.export(file)
    with InfiniteMemory(tmp_path / "yours.db", session_id="a chat of mine", user_id="you") as other:
        other.import_file(file)
        assert other.branch == "debug"
        assert texts(other.messages()) == texts([*TALK, *DEBUGGING])
        assert "add them to the set of blanks" in "".join(texts(other.context("What of tabulators?").messages))
        other.add([Message.user("And form feeds?"), Message.assistant("They hang it, too.")])
        other.export(file)
    with InfiniteMemory(tmp_path / "mine.db", session_id="parser") as memory:
        result = memory.import_file(file)
        assert (result.new, result.known, dict(result.remapped)) == (2, 10, {})
        memory.merge("debug", "squash")
        assert "They hang it, too." in texts(memory.messages())[-1], "what came back is news to the main chat"
