"""The `infinite-memory` command with its subcommands.

Other packages add subcommands through entry points of the group `infinite_memory.commands`.
"""

import io
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from shared_core.errors import InfiniteMemoryError, MissingExtraError

try:
    import typer
    from typer.core import TyperGroup
    from typer.main import get_command

    from shared_core.cli.branch_commands import branch_commands
    from shared_core.cli.file_commands import file_commands
    from shared_core.cli.message_commands import message_commands
    from shared_core.cli.options import CommonOptions, with_options
    from shared_core.cli.printing import say
    from shared_core.cli.session_commands import session_commands
except ModuleNotFoundError as error:
    if error.name not in {"typer", "rich"}:
        raise
    raise MissingExtraError('the command needs typer and rich: pip install "infinite-memory[cli]"') from error


class _Commands(TyperGroup):
    """The subcommands, including those of other packages."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a subcommand. Another package is imported only if its subcommand is called."""
        return super().get_command(ctx, cmd_name) or _plugged_in(cmd_name)


app = typer.Typer(
    cls=_Commands,
    help="Store a chat for good, search it, and see the prompt that fits the model's context.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="The extra langchain adds the command chat (infinite-memory chat --help).",
)


@app.callback()
@with_options
def common_options(options: CommonOptions) -> None:
    """Accept the common options before the subcommand; `with_options` passes them on to it."""


for commands in (file_commands, message_commands, session_commands, branch_commands):
    app.add_typer(commands)


def run(args: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return the exit code.

    The exit code is 0 if the command succeeds, 1 if it is interrupted or not confirmed or the store holds no session of
    that name, and 2 if an argument, a file or the store is invalid; one line on stderr then says why.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", RuntimeWarning)
            warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
            return int(app(args=args, prog_name="infinite-memory", standalone_mode=False) or 0)
    except typer.Abort:
        return _fail("nothing was forgotten", code=1)
    except typer.TyperException as error:
        return _fail(f"{error.format_message()} (see --help)")
    except (InfiniteMemoryError, ValueError) as error:
        return _fail(str(error))


def _plugged_in(name: str) -> Any:
    """Return the subcommand of another package, or None."""
    for entry in entry_points(group="infinite_memory.commands", name=name):
        plugin = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        plugin.command(name)(entry.load())
        return get_command(plugin)
    return None


def _fail(text: str, *, code: int = 2) -> int:
    say(text)
    return code
