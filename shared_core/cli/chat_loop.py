"""A chat in the terminal: it reads a line, answers it, and reads the next one."""

import sys
from collections.abc import Callable, Iterator, Mapping

import typer

from shared_core.cli.printing import count, message_line, printable, show_report
from shared_core.errors import InfiniteMemoryError
from shared_core.memory import InfiniteMemory
from shared_core.prompt.context import ContextReport

Reply = Callable[[str], Iterator[str]]
"""Takes what the user says and yields the model's answer as it is written; stores both in the memory."""

HELP = """\
/report         explain the last prompt; with --full, every message
/search WORDS   list the messages that match
/forget ID ...  erase messages for good
/help           show this list
/quit           end the chat (or Ctrl-D)"""


class ChatLoop:
    """A chat that runs until the user ends it.

    Attributes:
        report: explains the last prompt. Whoever builds the prompts sets it.
    """

    def __init__(self, memory: InfiniteMemory) -> None:
        self.report: ContextReport | None = None
        self._memory = memory
        self._commands: Mapping[str, Callable[[str], None]] = {
            "/report": self._show_report, "/search": self._search, "/forget": self._forget,
            "/help": lambda rest: typer.echo(HELP),
        }  # fmt: skip

    def keep_report(self, report: ContextReport) -> None:
        """Set the report that `/report` shows."""
        self.report = report

    def run(self, store: str, reply: Reply) -> None:
        """Greet the user, who chats with the messages of this store, and answer until the chat ends."""
        known = count(self._memory.stats()["messages"])
        _note(f"{known} known in {store}, session {self._memory.session_id}; /help lists the commands")
        while (line := _read()) is not None:
            if line.strip() and not self._take(line.strip(), reply):
                break

    def _take(self, line: str, reply: Reply) -> bool:
        """Obey or answer a line. Return whether the chat goes on."""
        word, _, rest = line.partition(" ")
        if word in ("/quit", "/exit"):
            return False
        if word in self._commands:
            self._commands[word](rest.strip())
        elif word.startswith("/"):
            _note(f"no command {printable(word)}; /help lists the commands")
        else:
            _answer(line, reply)
        return True

    def _show_report(self, rest: str) -> None:
        if self.report is None:
            typer.echo("nothing has been asked yet")
        else:
            show_report(self.report, full=rest == "--full", more="/report --full")

    def _search(self, words: str) -> None:
        found = self._memory.search(words) if words else []
        typer.echo("\n".join(f"{hit.score:6.2f}  {message_line(hit.message)}" for hit in found) or "nothing found")

    def _forget(self, rest: str) -> None:
        try:
            result = self._memory.forget(ids=rest.split())
        except InfiniteMemoryError as error:
            _note(str(error))
            return
        typer.echo(f"forgot {count(len(result.ids))}" + (f"\n! {result.reason}" if result.reason else ""))


def _answer(question: str, reply: Reply) -> None:
    try:
        for text in reply(question):
            typer.echo(printable(text), nl=False)
    except InfiniteMemoryError:
        raise
    except Exception as error:  # models raise errors of many kinds; the chat and the stored question survive them
        _note(f"the model failed: {printable(str(error))}; your message is stored")
    typer.echo()


def _read() -> str | None:
    if sys.stdin.isatty():
        typer.echo("> ", nl=False, err=True)
    return sys.stdin.readline() or None


def _note(text: str) -> None:
    typer.echo(text, err=True)
