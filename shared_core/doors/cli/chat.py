"""A chat in the terminal: it reads a line, answers it or obeys it, and reads the next one."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple, get_args

import typer

from shared_core.display import counted, printable, printable_name
from shared_core.doors.cli.branch_commands import copied, end_lines, ends, merged, stash_line, stashed, taken_back
from shared_core.doors.cli.error_words import in_words
from shared_core.doors.cli.models import ECHO, ChatModel, ModelName, chat_model, merge_summarizer
from shared_core.doors.cli.options import BranchName, MaxTokens, ReserveTokens, SessionOptions, say, with_options
from shared_core.doors.cli.printing import Lines, scored, show_report
from shared_core.doors.serving.erasing import newest_at, whole_id
from shared_core.errors import InfiniteMemoryError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.plugins.base import Summarizer
from shared_core.prompt.context import ContextReport
from shared_core.prompt.hits import without_weak
from shared_core.tree.merge import How

SHOWN = 20
"""How many messages /history and /log list if the user gives no number."""


class _Command(NamedTuple):
    """A command of the chat: how it is written, what it does in words, and what to call with its words."""

    usage: str
    help: str
    run: Callable[[Sequence[str]], None]

    def words(self, rest: str) -> list[str]:
        """Return the words after the command, missing ones as empty texts; a quoted one may have spaces.

        Raises:
            ValueError: there are too few or too many.
        """
        names = self.usage.split()[1:]
        several = names[-1:] == ["..."]
        words = rest.split() if several else shlex.split(rest)
        if several and words:
            return words
        if not sum(not name.startswith("[") for name in names) <= len(words) <= len(names):
            raise ValueError(f"expected: {self.usage}")
        return words + [""] * (len(names) - len(words))


class ChatLoop:
    """A chat that runs until the user ends it.

    Args:
        memory: stores the chat and builds the prompts.
        model: answers.
        summarizer: writes the answer of a squash or three-way merge. None: it lists what was said.
        check_out: called with a branch that the user checks out, for the commands to come.
    """

    def __init__(
        self, memory: InfiniteMemory, model: ChatModel, *, summarizer: Summarizer | None = None,
        check_out: Callable[[str], None] = lambda branch: None,
    ) -> None:  # fmt: skip
        self._memory = memory
        self._model = model
        self._summarizer = summarizer
        self._check_out = check_out
        self._report: ContextReport | None = None
        commands = [
            _Command("/fork NAME [AT]", "create a branch, here or at an earlier message, and go on there", self._fork),
            _Command("/checkout NAME", "go on with another branch", self._checkout),
            _Command("/merge NAME [HOW]", "merge a branch into this one; HOW as in merge --help", self._merge),
            _Command("/branches", "list the branches", self._branches),
            _Command(
                "/stash [pop|list]", "put the last exchange aside, bring it back, or list what is aside", self._stash
            ),
            _Command("/undo", "take back the last merge or stash of this branch", self._undo),
            _Command("/history [N]", f"list the newest messages of this branch, {SHOWN} by default", self._history),
            _Command("/log [N]", f"draw the newest messages of all branches, {SHOWN} by default", self._log),
            _Command("/search WORD ...", "list the messages of this branch that match", self._search),
            _Command("/report [--full]", "explain the last prompt; --full: every message", self._show_report),
            _Command("/forget ID ...", "erase messages for good", self._forget),
            _Command("/help", "show this list", self._help),
            _Command("/quit", "end the chat (or Ctrl-D)", lambda words: None),  # `_take` ends it
        ]
        self._commands: Mapping[str, _Command] = {command.usage.split()[0]: command for command in commands}

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
        word, _, rest = line.partition(" ")
        if word in ("/quit", "/exit"):
            return False
        if word in self._commands:
            command = self._commands[word]
            command.run(command.words(rest))
        elif word.startswith("/"):
            _note(f"no command {printable(word)}; /help lists the commands")
        else:
            self._answer(line)
        return True

    # Talk

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

    # Branches

    def _fork(self, words: Sequence[str]) -> None:
        name, at = words
        self._memory.fork(name, at or None)
        self._check_out(name)

    def _checkout(self, words: Sequence[str]) -> None:
        (name,) = words
        if name not in {branch.name for branch in self._memory.branches()}:
            newest_at(self._memory, name)  # an error that lists the branches, if there is no such message either
            raise ValueError(f"{name!r} is not a branch; to go on from there: /fork NAME {name}")
        self._memory.checkout(name)
        self._check_out(name)

    def _merge(self, words: Sequence[str]) -> None:
        name, way = words
        how = next((how for how in get_args(How) if how == (way or "auto")), None)
        if how is None:
            raise ValueError(f"{way!r} is no way to merge: choose one of {', '.join(get_args(How))}")
        summarizer = self._summarizer if how in ("squash", "three-way") else None
        result = self._memory.merge(name, how, summarizer=summarizer)
        typer.echo(merged(result, self._memory.branch or ""))

    def _branches(self, words: Sequence[str]) -> None:
        _print(end_lines(ends(self._memory, self._memory.branches()), Lines.of(), self._memory.branch))

    def _stash(self, words: Sequence[str]) -> None:
        (verb,) = words
        if verb == "pop":
            typer.echo(copied(self._memory.stash_pop()))
        elif verb == "list":
            lines = Lines.of()
            _print(lines.cut(stash_line(stash)) for stash in self._memory.stashes())
        elif verb:
            raise ValueError(f"/stash {verb}: expected /stash, /stash pop or /stash list")
        else:
            stash = self._memory.stash()
            typer.echo(stashed(stash) if stash is not None else "nothing to stash")

    def _undo(self, words: Sequence[str]) -> None:
        typer.echo(taken_back(self._memory.undo()))

    # Reading and forgetting

    def _history(self, words: Sequence[str]) -> None:
        lines = Lines.of()
        _print(lines.message(message) for message in self._memory.newest(_limit(words)))

    def _log(self, words: Sequence[str]) -> None:
        _print(Lines.of().graph(self._memory.log(_limit(words))))

    def _search(self, words: Sequence[str]) -> None:
        found, lines = without_weak(self._memory.search(" ".join(words))), Lines.of()
        _print([lines.message(hit.message, f"{scored(hit)} ") for hit in found] or ["nothing found"])

    def _show_report(self, words: Sequence[str]) -> None:
        if self._report is None:
            typer.echo("nothing has been asked yet")
        else:
            show_report(self._report, full=words[0] == "--full", more="/report --full")

    def _forget(self, words: Sequence[str]) -> None:
        result = self._memory.forget(ids=[whole_id(self._memory, id) for id in words])
        typer.echo(f"forgot {counted(len(result.ids), 'message')}" + (f"\n! {result.reason}" if result.reason else ""))

    def _help(self, words: Sequence[str]) -> None:
        width = max(len(command.usage) for command in self._commands.values())
        _print(f"{command.usage:<{width}}  {command.help}" for command in self._commands.values())


def _limit(words: Sequence[str]) -> int:
    """Return how many messages to list."""
    (text,) = words
    if not text:
        return SHOWN
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _print(lines: Iterator[str] | Sequence[str]) -> None:
    for line in lines:
        typer.echo(printable(line))


def _note(text: str) -> None:
    typer.echo(text, err=True)


@with_options
def chat(
    options: SessionOptions,
    model: ModelName = ECHO,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told first, with every question.")
    ] = None,
    branch: BranchName = None,
    max_tokens: MaxTokens = 4096,
    reserve_tokens: ReserveTokens = 500,
) -> None:
    """Chat with a model that remembers.

    /help lists what you can do in the chat, such as going on with another branch. The store and the conversation are
    created if they do not exist. Ctrl-C stops an answer.

    Examples:
      infinite-memory chat
      infinite-memory chat --model openai:gpt-4o-mini --system "You plan journeys."
    """
    answer, summarizer = chat_model(model), merge_summarizer(model)
    limits = {"max_tokens": max_tokens, "reserve_tokens": reserve_tokens}
    with options.create(system=system, on_overflow="keep", **limits) as memory:
        if branch is not None:
            memory.checkout(branch)
        ChatLoop(memory, answer, summarizer=summarizer, check_out=options.check_out).run(options.shown_store)
