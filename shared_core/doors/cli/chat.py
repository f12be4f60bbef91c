"""A chat in the terminal: it reads a line, answers it or runs it as a command, and reads the next one."""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from shared_core.display import counted, printable, printable_name
from shared_core.doors.cli.command import run
from shared_core.doors.cli.command_list import GROUPS
from shared_core.doors.cli.error_words import in_words
from shared_core.doors.cli.models import ECHO, ChatModel, ModelName, chat_model
from shared_core.doors.cli.options import MaxTokens, ReserveTokens, SessionOptions, is_empty, say, with_options
from shared_core.doors.cli.printing import show_report
from shared_core.errors import InfiniteMemoryError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.prompt.report import ContextReport

COMMANDS = {
    name: summary
    for group in ("Everyday", "Branches")
    for name, (_, summary) in GROUPS[group].items()
    if name != "chat"
} | {
    "report": "Explain the last prompt; with --full, every message.",
    "help": "List the commands; /NAME --help explains one.",
    "quit": "End the chat (or Ctrl-D).",
}  # fmt: skip
"""What a line may begin with, after a slash: the commands of the shell, and those of the chat alone."""

_BEGINNINGS = {"add", "explain", "forget", "import", "search", "sessions"}
"""The commands that need no message in the conversation."""

_WORD = re.compile(r'"([^"]*)"|(\S+)')
"""A word of a command. Only double quotes enclose several: an apostrophe is one."""


class ChatLoop:
    """A chat that runs until the user ends it.

    Args:
        memory: stores the chat and builds the prompts.
        model: answers.
        command: runs a command of the shell, given its name and words, in this conversation, and returns the branch
            that is then checked out.
    """

    def __init__(self, memory: InfiniteMemory, model: ChatModel, command: Callable[[str, Sequence[str]], str]) -> None:
        self._memory = memory
        self._model = model
        self._command = command
        self._report: ContextReport | None = None

    def run(self, store: str) -> None:
        """Greet the user, who chats with the messages of this store, and answer until the chat ends."""
        known = counted(self._memory.stats()["messages"], "message")
        session = printable_name(self._memory.session_id)
        _note(f"{known} known in {printable_name(store)}, session {session}; /help lists the commands")
        while (line := self._read()) is not None:
            try:
                if line.strip() and not self._take(line.strip()):
                    break
            except (InfiniteMemoryError, ValueError) as error:
                say(in_words(str(error)))

    def _read(self) -> str | None:
        """Return the next line; None: the chat ends."""
        terminal = sys.stdin.isatty()
        while True:
            if terminal:
                typer.echo(f"{printable_name(self._memory.branch or 'detached')}> ", nl=False, err=True)
            try:
                return sys.stdin.readline() or None
            except KeyboardInterrupt:
                if not terminal:
                    raise
                _note("\nto end the chat: /quit or Ctrl-D")

    def _take(self, line: str) -> bool:
        """Obey or answer a line. Return whether the chat goes on."""
        if not line.startswith("/"):
            self._answer(line)
            return True
        typed: list[str] = [quoted or plain for quoted, plain in _WORD.findall(line[1:])]
        name, *words = typed or [""]
        if name == "report":
            self._show_report(full="--full" in words)
        elif name == "help":
            width = max(map(len, COMMANDS))
            typer.echo("\n".join(f"/{name:<{width}}  {summary}" for name, summary in COMMANDS.items()))
        elif name not in COMMANDS:
            _note(f"no command {printable(f'/{name}')}; /help lists the commands")
        elif name not in {"quit", *_BEGINNINGS} and "--help" not in words and is_empty(self._memory):
            _note(f"/{name} needs a message: say something first")
        elif name != "quit":
            self._memory.checkout(self._command(name, words))
        return name != "quit"

    def _answer(self, question: str) -> None:
        """Store a question, print the model's answer as it comes, and store what came of it."""
        asked = self._stored(question)
        context = self._memory.context()
        self._report = context.report
        pieces: list[str] = []
        ending = ""
        try:
            for text in self._model(context.messages):
                pieces.append(text)
                typer.echo(printable(text), nl=False)
        except KeyboardInterrupt:
            ending = "stopped"
        except Exception as error:  # models raise errors of many kinds; the chat and the stored question survive them
            ending = f"the model failed: {printable(str(error))}"
        typer.echo()
        answer = "".join(pieces)
        if answer:
            self._memory.add(Message.assistant(answer), turn=asked.turn_id)
        if ending:
            _note(f"{ending}; {'what was written' if answer else 'your message'} is stored")

    def _stored(self, question: str) -> Message:
        """Return the question as stored. If it is asked again because it got no answer, it is not stored twice."""
        for newest in self._memory.newest(1):
            if newest.role == "user" and newest.content == question:
                return newest
        return self._memory.add(Message.user(question))[0]

    def _show_report(self, *, full: bool) -> None:
        if self._report is None:
            typer.echo("nothing has been asked yet")
        else:
            show_report(self._report, full=full, more="/report --full")


def _note(text: str) -> None:
    typer.echo(text, err=True)


@with_options
def chat(
    options: SessionOptions,
    model: ModelName = ECHO,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told first, with every question.")
    ] = None,
    max_tokens: MaxTokens = 4096,
    reserve_tokens: ReserveTokens = 500,
) -> None:
    """Chat with a model that remembers.

    A line that begins with a slash is a command as you would type it in the shell, such as /fork rain or /log -n 5, in
    this conversation; /help lists them. The store and the conversation are created if they do not exist. Ctrl-C stops
    an answer.

    Examples:
      infinite-memory chat
      infinite-memory chat --model openai:gpt-4o-mini --system "You plan journeys."
    """
    user = [] if options.user is None else ["--user", options.user]

    def command(name: str, words: Sequence[str]) -> str:
        given = ["--model", model] if name == "merge" else []
        run([name, "--store", options.store, "--session", options.session_id, *user, *given, *words])
        return options.target()

    answer = chat_model(model)
    limits = {"max_tokens": max_tokens, "reserve_tokens": reserve_tokens}
    with options.create(system=system, on_overflow="keep", **limits) as memory:
        ChatLoop(memory, answer, command).run(options.shown_store)
