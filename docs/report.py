"""Draw the picture in the README from a real report: `python docs/report.py` writes docs/report.svg."""

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from shared_core import ContextReport, InfiniteMemory
from shared_core.sharing.readers.openai import read_messages

DOCS = Path(__file__).parent
QUESTION = "What was the code of my locker at the climbing hall?"
COLOURS = {"S": "magenta", "Q": "yellow", "R": "green", "W": "blue"}


def report() -> ContextReport:
    """Return the report on one question to the example conversation, for a small model."""
    with InfiniteMemory(max_tokens=1_100, reserve_tokens=300, top_k=6) as memory:
        memory.add(read_messages(DOCS.parent / "examples" / "data" / "conversation.json"))
        memory.index()
        return memory.context(QUESTION).report


def coloured(line: str) -> Text:
    """Return a line of the report with the bar's letters and the included messages in colour."""
    text = Text(line)
    if line.startswith("["):
        for match in re.finditer(r"([SQRW])\1*", line[: line.index("]")]):
            text.stylize(f"black on {COLOURS[match[1]]}", *match.span())
    elif line.startswith("-"):
        text.stylize("bright_black")
    elif "recalled: matches" in line:
        text.stylize("green")
    return text


def main() -> None:
    """Write the picture."""
    console = Console(record=True, width=140, file=io.StringIO())
    console.print(Text(f"> {QUESTION}\n", style="bold"))
    for line in str(report()).splitlines():
        console.print(coloured(line), no_wrap=True, crop=True)
    svg = console.export_svg(title="why each message is in the prompt")
    # The picture must not fetch a font from anywhere.
    (DOCS / "report.svg").write_text(re.sub(r"@font-face\s*{.*?}", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
