"""The `infinite-memory` command with its subcommands.

Other packages add subcommands through entry points of the group `infinite_memory.commands`, and models to chat with
through those of the group `infinite_memory.models`.
"""

import io
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import entry_points, version
from typing import Annotated, Any, Literal

from shared_core.errors import InfiniteMemoryError, MissingExtraError

try:
    import typer
    from typer.completion import get_completion_inspect_parameters, shell_complete
    from typer.core import TyperGroup
    from typer.main import get_command

    from shared_core.doors.cli.branch_commands import branch_commands
    from shared_core.doors.cli.chat import chat_commands
    from shared_core.doors.cli.error_words import in_words
    from shared_core.doors.cli.evaluate_command import evaluate_commands
    from shared_core.doors.cli.examples import epilog
    from shared_core.doors.cli.file_commands import file_commands
    from shared_core.doors.cli.mcp_command import mcp_commands
    from shared_core.doors.cli.message_commands import message_commands
    from shared_core.doors.cli.options import CommonOptions, with_options
    from shared_core.doors.cli.printing import say
    from shared_core.doors.cli.serve_command import serve_commands
    from shared_core.doors.cli.session_commands import session_commands
    from shared_core.doors.cli.stash_commands import stash_commands
    from shared_core.doors.cli.upkeep_commands import upkeep_commands
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

PLUGINS = "infinite_memory.commands"

plain: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
"""Settings of typer: errors are one line, and help is text."""


class _Commands(TyperGroup):
    """The subcommands, including those of other packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all subcommands."""
        names = super().list_commands(ctx)
        return [*names, *sorted({entry.name for entry in entry_points(group=PLUGINS)} - {*names})]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a subcommand with its examples. Another package is imported for its subcommand and for --help."""
        return _with_examples(super().get_command(ctx, cmd_name) or _plugged_in(cmd_name), cmd_name)


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
@with_options
def common_options(
    options: CommonOptions,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Accept the common options before the subcommand; `with_options` passes them on to it."""


own_commands = typer.Typer()


@own_commands.command()
def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"], typer.Argument(help="The shell that is to complete commands.")
    ],
) -> None:
    """Print a script that makes a shell complete commands.

    Options and the names of branches, tags and conversations are completed, too.
    """
    raise typer.Exit(shell_complete(get_command(app), {}, NAME, _completion_variable(), f"source_{shell}"))


for commands in (message_commands, chat_commands, session_commands, branch_commands):
    app.add_typer(commands)
app.add_typer(stash_commands, name="stash")
for commands in (file_commands, upkeep_commands, evaluate_commands, mcp_commands, serve_commands, own_commands):
    app.add_typer(commands)


def run(args: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return the exit code.

    The exit code is 0 if the command succeeds, 1 if it is not confirmed, the store holds no session of that name, or
    `doctor` finds damage, 2 if an argument, a file or the store is invalid, and 130 if it is interrupted; one line on
    stderr then says why.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    _prepare_completion()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", RuntimeWarning)
            warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
            given = list(sys.argv[1:] if args is None else args)
            code = int(app(args=given or ["--help"], prog_name=NAME, standalone_mode=False) or 0)
    except typer.Abort:
        return _fail("the input ended before the command was done", code=1)
    except typer.TyperException as error:
        return _fail(f"{in_words(error.format_message())} (see --help)")
    except (InfiniteMemoryError, ValueError, OSError) as error:
        return _fail(in_words(str(error)))
    return _fail("interrupted", code=code) if code == INTERRUPTED else code


def _prepare_completion() -> None:
    get_completion_inspect_parameters()  # its effect counts: typer knows the shells from then on


def _completion_variable() -> str:
    return f"_{NAME}_COMPLETE".replace("-", "_").upper()


def _with_examples(command: Any, name: str) -> Any:
    """Return a command, and for a group its commands, with examples at the end of the help."""
    if command is not None and command.epilog is None:
        command.epilog = epilog(name)
        for child, one in getattr(command, "commands", {}).items():
            _with_examples(one, f"{name} {child}")
    return command


def _plugged_in(name: str) -> Any:
    """Return the subcommand of another package, or None."""
    for entry in entry_points(group=PLUGINS, name=name):
        plugin = typer.Typer(**plain)
        plugin.command(name)(_loaded(entry))
        return get_command(plugin)
    return None


def _loaded(entry: Any) -> Any:
    """Return the function of a subcommand; if its package cannot be imported, one that says why."""
    try:
        return entry.load()
    except ImportError as error:
        reason = str(error)

        def unusable() -> None:
            raise MissingExtraError(reason)

        unusable.__doc__ = f"Not available: {reason}"
        return unusable


def _fail(text: str, *, code: int = 2) -> int:
    say(text)
    return code
