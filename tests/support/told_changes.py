"""Changes in people's own words, read from text files and put among filler."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

from shared_core import Message
from tests.support.changed_facts import START, Change, filler

__all__ = ["MADE_UP", "read_changes"]

MADE_UP = Path(__file__).parent.parent / "recall" / "made_up"


def read_changes(name: str, *, seed: int = 0) -> Iterator[Change]:
    """Yield the changes of a file; what is not to be replaced counts as said by others.

    Args:
        name: the name of the file, without its ending; its first lines tell its form.
        seed: chooses where things are said.
    """
    random = Random(seed)
    _, *blocks = (MADE_UP / f"{name}.txt").read_text().strip().split("\n\n")
    for block in blocks:
        yield _told([(line[0], line[2:]) for line in block.splitlines()], random)


def _told(lines: list[tuple[str, str]], random: Random) -> Change:
    said = [text for sign, text in lines if sign in "->"]
    apart = [(sign, text) for sign, text in lines if sign in "~*"]
    (question,), (history,) = ([text for sign, text in lines if sign == wanted] for wanted in "?<")
    length = random.choice((12, 40, 90, 160))
    spots = random.sample(range(length), len(said) + len(apart))
    at = dict(zip(sorted(spots[: len(said)]), [("-", text) for text in said], strict=True))
    at |= zip(spots[len(said) :], apart, strict=True)
    messages: list[Message] = []
    for line in range(length):
        sign, text = at.get(line, ("", filler(random)))
        speaker = "Ben" if sign == "*" else None
        time = START + timedelta(hours=7 * line)
        messages.append(Message.user(text, id=f"m{line}", name=speaker, created_at=time))
        messages.append(Message.assistant("Noted.", id=f"r{line}", created_at=time + timedelta(minutes=1)))
    own = tuple(f"m{line}" for line in sorted(at) if at[line][0] == "-")
    others = tuple(f"m{line}" for line in sorted(at) if at[line][0] != "-")
    return Change(tuple(messages), own, others, tuple(said), question, history)
