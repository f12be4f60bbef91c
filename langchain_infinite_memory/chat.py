"""The command `infinite-memory chat`: talk to a model in the terminal, with everything said before behind it."""

import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from langchain_infinite_memory.runnable import InfiniteMemoryRunnable
from langchain_infinite_memory.testing import EchoChatModel
from shared_core.cli.app import Session, StorePath, User
from shared_core.cli.printing import count, line, printable
from shared_core.engine import InfiniteMemory
from shared_core.errors import InfiniteMemoryError
from shared_core.prompt.context import ContextReport

__all__ = ["chat"]

HELP = """\
/report         why the last prompt was as it was
/search WORDS   what was said about it
/forget ID ...  erase messages for good, everywhere
/help           this
/quit           end (or Ctrl-D)"""


def chat(
    model: Annotated[
        str, typer.Option("--model", metavar="PROVIDER:MODEL", help="As for init_chat_model; echo needs no key.")
    ] = "echo",
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    max_tokens: Annotated[int, typer.Option(help="The model's limit.")] = 4096,
) -> None:
    """Talk to a model that remembers; /help lists what else can be said."""
    chosen = _model(model)
    with InfiniteMemory(store, session_id=session, user_id=user, max_tokens=max_tokens, on_overflow="keep") as memory:
        known = memory.stats()["messages"]
        _note(f"{count(known)} known in {store}, session {session}; /help lists what else can be said")
        talk = _Talk(memory, chosen)
        while (said := _read()) is not None:
            if said.strip() and not talk.take(said.strip()):
                break


def _model(name: str) -> BaseChatModel:
    if name == "echo":
        return EchoChatModel()
    try:
        model: BaseChatModel = init_chat_model(name)
    except Exception as error:  # each provider has errors of its own for a missing key
        raise typer.BadParameter(f"{name!r} cannot be used: {error}") from error
    return model


class _Talk:
    """One conversation in the terminal."""

    def __init__(self, memory: InfiniteMemory, model: BaseChatModel) -> None:
        self.memory = memory
        self.chain = InfiniteMemoryRunnable(model, memory=memory, on_error="raise", on_report=self._keep)
        self.report: ContextReport | None = None
        self.commands: Mapping[str, Callable[[str], None]] = {
            "/report": self._show_report, "/search": self._search, "/forget": self._forget,
            "/help": lambda rest: typer.echo(HELP),
        }  # fmt: skip

    def _keep(self, report: ContextReport) -> None:
        self.report = report

    def take(self, said: str) -> bool:
        """Do or answer what was said; False: it was goodbye."""
        word, _, rest = said.partition(" ")
        if word in ("/quit", "/exit"):
            return False
        if word in self.commands:
            self.commands[word](rest.strip())
        elif word.startswith("/"):
            _note(f"no command {printable(word)}; /help lists them")
        else:
            self._answer(said)
        return True

    def _answer(self, said: str) -> None:
        whose: Any = {"configurable": {"session_id": self.memory.session_id}}
        try:
            for chunk in self.chain.stream(HumanMessage(said), whose):
                typer.echo(printable(chunk.text), nl=False)
        except InfiniteMemoryError:
            raise
        except Exception as error:  # the model's: the chat, and what was said, go on
            _note(f"the model failed: {printable(str(error))}; what you said is kept")
        typer.echo()

    def _show_report(self, rest: str) -> None:
        typer.echo(str(self.report) if self.report is not None else "nothing has been asked yet")

    def _search(self, words: str) -> None:
        found = self.memory.search(words) if words else []
        typer.echo("\n".join(f"{hit.score:6.2f}  {line(hit.message)}" for hit in found) or "nothing found")

    def _forget(self, rest: str) -> None:
        ids = rest.split()
        try:
            result = self.memory.forget(ids=ids)
        except InfiniteMemoryError as error:
            _note(str(error))
            return
        typer.echo(f"forgot {count(len(result.ids))}" + (f"\n! {result.reason}" if result.reason else ""))


def _read() -> str | None:
    if sys.stdin.isatty():
        typer.echo("> ", nl=False, err=True)
    text = sys.stdin.readline()
    return text or None


def _note(text: str) -> None:
    typer.echo(text, err=True)
