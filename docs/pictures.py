"""Draw the pictures of the documentation: `python docs/pictures.py` writes them here, for light and dark."""

import io
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from rich.console import Console
from rich.text import Text

from shared_core import Context, InfiniteMemory, Message, sliding_window
from shared_core.doors.cli.printing import report_text
from shared_core.prompt.hits import Kind
from shared_core.sharing.readers.openai import read_messages
from shared_core.tokens import as_counter, message_tokens

DOCS = Path(__file__).parent
QUESTION = "What was the code of my locker at the climbing hall?"
ANSWER = "4093"
MAX_TOKENS, RESERVE_TOKENS = 1_100, 300
BUDGET = MAX_TOKENS - RESERVE_TOKENS
WIDTH = 100

STYLE = """
svg { background: #ffffff; font: 15px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
text { fill: #1f2328; } .muted { fill: #59636e; } .in { fill: #ffffff; font-size: 13px; } .strong { font-weight: 600; }
.box { fill: #f6f8fa; stroke: #d1d9e0; } .line { stroke: #59636e; stroke-width: 2; fill: none; } .tip { fill: #59636e; }
.system { fill: #6e7781; } .window { fill: #3f6fb5; } .recalled { fill: #1a7f37; } .question { fill: #9a5b00; }
.good { fill: #1a7f37; } .bad { fill: #c4242d; } .faint { fill: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; }
  text { fill: #e6edf3; } .muted, .tip { fill: #9198a1; } .in { fill: #ffffff; } .line { stroke: #9198a1; }
  .box { fill: #151b23; stroke: #3d444d; } .faint { fill: #3d444d; }
  .window { fill: #3f6fb5; } .recalled { fill: #238636; } .good { fill: #3fb950; } .bad { fill: #f85149; }
}
"""


def conversation() -> list[Message]:
    """Return the example conversation: 607 messages over nine weeks."""
    return read_messages(DOCS.parent / "examples" / "data" / "conversation.json")


def prompt() -> Context:
    """Return the prompt for one question to the example conversation, for a small model."""
    with InfiniteMemory(max_tokens=MAX_TOKENS, reserve_tokens=RESERVE_TOKENS, embedder="static") as memory:
        memory.add(conversation())
        memory.index()
        return memory.context(QUESTION)


def picture(width: int, height: int, title: str, *parts: str) -> str:
    """Return an SVG with the colours of light and dark pages; it loads nothing."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


# The report


def report(context: Context) -> str:
    """Return the report on a prompt as a terminal shows it."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"> {QUESTION}\n", style="bold"))
    console.print(report_text(context.report.render(width=WIDTH)), no_wrap=True, crop=True)
    svg = console.export_svg(title="what is in the prompt, and why")
    # The picture must not fetch a font from anywhere.
    return re.sub(r"@font-face\s*{.*?}", "", svg, flags=re.DOTALL)


# The two bars

LEFT, RIGHT = 24, 856


def bars(context: Context) -> str:
    """Return one budget filled twice for the same question: by a sliding window, and by this package."""
    counter = as_counter(None)
    messages = conversation()
    asked = Message.user(QUESTION)
    window = sliding_window([*messages, asked], max_tokens=MAX_TOKENS, reserve_tokens=RESERVE_TOKENS)
    sizes = [message_tokens(message, counter) for message in window]
    assert not any(ANSWER in message.content for message in window)
    totals = context.report.totals
    hit = context.report.best[0]
    assert ANSWER in hit.text
    ago = len(messages) - next(index for index, one in enumerate(messages) if one.id == hit.id)
    newest = sum(line.kind is Kind.WINDOW for line in context.report.included)
    return picture(
        880, 296, "One budget, filled by a sliding window and by infinite-memory",
        text(LEFT, 34, f"“{QUESTION}”", "strong"),
        text(LEFT, 56, f"{len(messages)} messages over nine weeks, {BUDGET} tokens for the prompt", "muted"),
        text(LEFT, 96, "A sliding window", "strong"),
        *bar(106, [
            ("system", "system", sizes[0]), ("window", f"the newest {len(window) - 2} messages", sum(sizes[1:-1])),
            ("question", "?", sizes[-1]),
        ]),
        text(LEFT, 164, f"✗  The code is not in the prompt: it was said {ago} messages ago.", "bad"),
        text(LEFT, 206, "infinite-memory", "strong"),
        *bar(216, [
            ("system", "system", totals[Kind.SYSTEM]), ("window", f"the newest {newest}", totals[Kind.WINDOW]),
            ("recalled", "recalled from all that was said", totals[Kind.RECALLED]),
            ("question", "?", totals[Kind.QUESTION]),
        ]),
        text(LEFT, 274, f"✓  “… my locker at the climbing hall is number 118 and the code is {ANSWER} …”", "good"),
    )  # fmt: skip


def bar(y: float, segments: Sequence[tuple[str, str, int]]) -> Iterator[str]:
    """Yield a bar as wide as the budget with these segments: kind, words and tokens."""
    scale = (RIGHT - LEFT) / BUDGET
    yield f'<rect x="{LEFT}" y="{y:g}" width="{RIGHT - LEFT}" height="36" rx="4" class="faint"/>'
    x = float(LEFT)
    for kind, words, tokens in segments:
        width = tokens * scale
        yield f'<rect x="{x:.1f}" y="{y:g}" width="{max(width - 2, 1):.1f}" height="36" rx="4" class="{kind}"/>'
        yield text(round(x + width / 2 - 1, 1), y + 23, words, "in", "middle")
        x += width


# The loop, and the tree


def box(x: float, y: float, width: float, *lines: str) -> str:
    """Return a box with a strong first line and others below it."""
    middle = x + width / 2
    words = [
        text(middle, y + 30 + 22 * row, line, "muted" if row else "strong", "middle") for row, line in enumerate(lines)
    ]
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="76" rx="6" class="box"/>' + "".join(words)


def arrow(x: float, y: float, to: float, words: str) -> str:
    """Return a level arrow with words above it."""
    tip = 8 if to > x else -8
    head = f'<path d="M{to:g} {y:g} l{-tip:g} -5 v10 z" class="tip"/>'
    line = f'<path d="M{x:g} {y:g} H{to - tip:g}" class="line"/>'
    return line + head + text((x + to) / 2, y - 8, words, "muted", "middle")


def loop() -> str:
    """Return how a program, the memory and the model work together."""
    return picture(
        880, 150, "The program asks the memory for a prompt, sends it to the model, and stores what was said",
        box(24, 37, 170, "the memory", "keeps everything"), box(386, 37, 160, "your program", "a loop"),
        box(686, 37, 170, "the model", "any"),
        arrow(194, 58, 386, "context(question)"), arrow(386, 96, 194, "add(question, reply)"),
        arrow(546, 58, 686, "prompt"), arrow(686, 96, 546, "reply"),
    )  # fmt: skip


def tree() -> str:
    """Return two branches, and what recall sees from one of them."""
    shared, theirs, ours, y = range(70, 335, 66), range(400, 797, 66), range(466, 731, 66), 70

    def dots(xs: Sequence[int], at: float, kind: str) -> str:
        return "".join(f'<circle cx="{x}" cy="{at:g}" r="11" class="{kind}"/>' for x in xs)

    return picture(
        880, 230, "Recall sees the branch that is checked out: what came before the fork, and what was said on it",
        f'<path d="M70 {y} H796 M334 {y} C400 {y} 400 160 466 160 H730" class="line"/>',
        dots(shared, y, "recalled"), dots(theirs, y, "faint"), dots(ours, 160, "recalled"),
        text(24, 34, "main", "strong"), text(466, 196, "side, checked out", "strong"),
        text(816, y + 5, "unseen", "muted"), text(754, 165, "head", "muted"),
        text(24, 196, "● what prompts and recall see", "good"), text(24, 218, "● said on another branch", "muted"),
    )  # fmt: skip


def main() -> None:
    """Write the pictures."""
    context = prompt()
    for name, svg in {"report": report(context), "bars": bars(context), "loop": loop(), "tree": tree()}.items():
        (DOCS / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
