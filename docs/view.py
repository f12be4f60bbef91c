"""Draw the picture of the page in the README: `python docs/view.py` writes docs/view.png; needs Chromium and Pillow."""

import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from shared_core import InfiniteMemory, Message
from shared_core.doors.view import write_page
from shared_core.sharing.readers.openai import read_messages

DOCS = Path(__file__).parent
QUESTION = "What was the code of my locker at the climbing hall?"
START = datetime(2026, 5, 4, 18, 2, tzinfo=timezone(timedelta(hours=2)))
LIMITS: dict[str, Any] = {"max_tokens": 1_600, "reserve_tokens": 400}
SIZE = (1360, 650)


def demo(store: Path) -> None:
    """Store the example conversation, and after it made-up branches, merges, a tag and a stash."""
    minutes = count()

    def at_hand(*texts: str) -> list[Message]:
        return [
            (Message.assistant if number % 2 else Message.user)(
                text, created_at=START + timedelta(minutes=next(minutes))
            )
            for number, text in enumerate(texts)
        ]

    with InfiniteMemory(
        store, session_id="Tilda", embedder="static", clock=lambda: START + timedelta(minutes=next(minutes)), **LIMITS
    ) as memory:
        memory.add(read_messages(DOCS.parent / "examples" / "data" / "conversation.json"))
        memory.tag("before forest week")
        memory.add(at_hand("Which two bugs do I tell them about at Py Rhein?", "The ones that taught you something."))
        memory.fork("talk")
        memory.add(at_hand("The ruler and the redelivered messages?", "Yes: one makes them laugh, the other teaches."))
        memory.add(at_hand("And the slide with the timeline?", "Leave it out. Two bugs, two pictures."))
        memory.fork("rain", at="before forest week")
        memory.add(at_hand("If it rains all week, what does Romy need?", "Two pairs of everything, and a dry box."))
        memory.checkout("main")
        memory.merge("talk", "squash", prompt="What did we decide for the talk?")
        memory.add(at_hand("Should I run on Monday already?", "Not before 7 May."))
        memory.stash(note="running, later")
        memory.checkout("rain")
        memory.add(at_hand("May the pens go into the dry box, too?", "Yes, below 25 °C, and never left in a car."))
        memory.checkout("main")
        memory.merge("rain")
        memory.fork("june")
        memory.add(at_hand("Could we take the cargo bike to the Vosges?"))
        memory.checkout("main")
        memory.add(at_hand(QUESTION, "Locker 118, code 4093."))
        memory.index()


def picture(page: str, out: Path, size: tuple[int, int]) -> None:
    """Have a browser draw a page."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("docs/view.py draws with Chromium, which is not installed")
    with TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking"]
        flags += [f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", f"--screenshot={out}"]
        subprocess.run([browser, *flags, page], check=True, capture_output=True)
    with Image.open(out) as drawn:
        small(drawn.convert("RGB")).save(out, optimize=True)


def small(drawn: Image.Image) -> Image.Image:
    """Return a picture with a palette, at a third of the size: its commonest colours, and its most different ones."""
    common = drawn.quantize(192, Image.Quantize.MEDIANCUT).getpalette() or []
    rare = drawn.quantize(64, Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*common[: 3 * 192], *rare[: 3 * 64]])
    return drawn.quantize(palette=palette, dither=Image.Dither.NONE)


def main() -> None:
    """Write the picture."""
    with TemporaryDirectory() as folder:
        store = Path(folder) / "chat.db"
        demo(store)
        page = write_page(store, Path(folder) / "page.html", session_id="Tilda", questions=40, **LIMITS)
        picture(page.as_uri(), DOCS / "view.png", SIZE)


if __name__ == "__main__":
    main()
