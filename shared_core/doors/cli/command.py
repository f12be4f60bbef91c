"""The `infinite-memory` command with its subcommands."""

import io
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from inspect import getdoc
from typing import Annotated, Any

from shared_core.errors import InfiniteMemoryError, MissingExtraError

try:
    import typer
    from typer.core import TyperGroup
    from typer.main import get_command

    from shared_core.doors.cli.command_list import COMMANDS, GROUPS
    from shared_core.doors.cli.error_words import in_words
    from shared_core.doors.cli.options import say
except ModuleNotFoundError as error:
    if error.name not in {"typer", "rich"}:
        raise
    raise MissingExtraError('the command needs typer and rich: pip install "infinite-memory[cli]"') from error

NAME = "infinite-memory"

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended, as shells have it."""

HELP = """Store a chat for good, search it, and see the prompt that fits the model's context.

The commands work on the branch of the conversation that is checked out, in the store chat.db. Lists show times in UTC.
"""

FUNCTIONS = {"import": "import_file", "export": "export_file"}
"""The functions of commands that are called otherwise."""

plain: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": None}
"""Settings of typer: errors are one line, and help is text."""


class _Commands(TyperGroup):
    """The subcommands, which the help lists in groups. Each is imported when it is run, or its help is read."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": dict.fromkeys(COMMANDS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a subcommand; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"shared_core.doors.cli.{COMMANDS[cmd_name][0]}")
        function = getattr(module, FUNCTIONS.get(cmd_name, cmd_name.replace("-", "_")))
        made = typer.Typer(add_completion=False, **plain)
        # Lists and examples keep their lines.
        made.command(cmd_name, help=re.sub(r"\n\n(?=[^\n]+:\n +\S)", "\n\n\b\n", getdoc(function) or ""))(function)
        return get_command(made)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the subcommands in their groups."""
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])


app = typer.Typer(
    cls=_Commands,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{NAME} COMMAND --help explains a command and gives an example.",
    **plain,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{NAME} {version(NAME)}")
        raise typer.Exit


@app.callback()
def no_command(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Accept what may stand before a command."""


def run(args: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return the exit code.

    The exit code is 0 if the command succeeds, 1 if it is not confirmed, the store holds no session of that name, or
    `doctor` finds damage, 2 if an argument, a file or the store is invalid, and 130 if it is interrupted; one line on
    stderr then says why.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    given = list(sys.argv[1:] if args is None else args)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", RuntimeWarning)
            warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
            code = int(app(args=given or ["--help"], prog_name=NAME, standalone_mode=False) or 0)
    except typer.Abort:
        return _fail("the input ended before the command was done", code=1)
    except typer.TyperException as error:
        order = "options follow the command; " if given[0].startswith("-") else ""
        return _fail(f"{in_words(error.format_message())} ({order}see --help)")
    except (InfiniteMemoryError, ValueError, OSError) as error:
        return _fail(in_words(str(error)))
    return _fail("interrupted", code=code) if code == INTERRUPTED else code


def _fail(text: str, *, code: int = 2) -> int:
    say(text)
    return code
