"""The entry point of the command: `infinite-memory` and `python -m shared_core`."""

import sys

from shared_core.errors import MissingExtraError


def main() -> int:
    """Run the command and return its exit code; without the `cli` extra, say how to install it."""
    try:
        from shared_core.doors.cli.command import run

        return run()
    except MissingExtraError as error:
        sys.stderr.write(f"infinite-memory: {error}\n")
        return 2
    except KeyboardInterrupt:  # before or after the command itself
        sys.stderr.write("infinite-memory: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
