"""Draw the picture in the README from a real report: `python docs/report.py` writes docs/report.svg."""

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from shared_core import ContextReport, InfiniteMemory
from shared_core.doors.cli.printing import report_text
from shared_core.sharing.readers.openai import read_messages

DOCS = Path(__file__).parent
QUESTION = "What was the code of my locker at the climbing hall?"
WIDTH = 100


def report() -> ContextReport:
    """Return the report on one question to the example conversation, for a small model."""
    with InfiniteMemory(max_tokens=1_100, reserve_tokens=300, embedder="static") as memory:
        memory.add(read_messages(DOCS.parent / "examples" / "data" / "conversation.json"))
        memory.index()
        return memory.context(QUESTION).report


def main() -> None:
    """Write the picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"> {QUESTION}\n", style="bold"))
    console.print(report_text(report().render(width=WIDTH)), no_wrap=True, crop=True)
    svg = console.export_svg(title="what is in the prompt, and why")
    # The picture must not fetch a font from anywhere.
    (DOCS / "report.svg").write_text(re.sub(r"@font-face\s*{.*?}", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
