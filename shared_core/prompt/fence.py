"""Foreign text made safe to stand between the tags of a record: it can neither close it nor pose as more; pure."""

import re
from functools import lru_cache
from unicodedata import normalize

from shared_core.formats.fields import ROLE_NAMES
from shared_core.messages import Message

_TAG = re.compile(r"</?\s*([A-Za-z][\w-]*)")

_OPENS = "<\uff1c\ufe64"
"""The sign that opens a tag, and its full-width and small forms."""

_UNSEEN = (
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff]"
)
"""Characters that take no place: a reader, and most tokenizers, see the word without them."""

_LINE_BREAKS = re.compile("\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
"""What begins a new line, as in `str.splitlines`."""


def defused(text: str, wording: str) -> str:
    """Return a text in which the tags of the wording around it are escaped, in any case, spacing and width."""
    if "<" not in text and (text.isascii() or not any(sign in text for sign in _OPENS)):
        return text  # as nearly every text
    fence = _fence(wording)
    return text if fence is None else fence.sub("&lt;", text)


@lru_cache(maxsize=16)
def _fence(wording: str) -> re.Pattern[str] | None:
    """Return a pattern for the beginnings of the wording's own tags. It cannot backtrack, so it takes linear time."""
    names = sorted(set(_TAG.findall(wording)))
    if not names:
        return None
    blank = rf"(?:\s|{_UNSEEN})*+"
    spelled = "|".join("".join(f"{_letter(letter)}{_UNSEEN}*+" for letter in name) for name in names)
    return re.compile(rf"[{_OPENS}](?={blank}[/\uff0f]?{blank}(?:{spelled})(?!\w))")


def _letter(letter: str) -> str:
    """Return a class of the forms of an ASCII character: in both cases, narrow and full-width."""
    forms = {letter.lower(), letter.upper()}
    return f"[{''.join(sorted(re.escape(form) + chr(ord(form) + 0xFEE0) for form in forms))}]"


def folded(text: str, continuation: str) -> str:
    """Return a text whose lines after the first begin with `continuation`, which starts with a line feed."""
    return _LINE_BREAKS.sub(continuation, text) if _LINE_BREAKS.search(text) else text


def speaker(message: Message) -> str:
    """Return who says a message: the name, or the role; both, if the name is that of another role."""
    if message.name is None:
        return message.role
    name = " ".join(message.name.split())
    seen = re.sub(_UNSEEN, "", normalize("NFKC", name)).strip().casefold()
    poses = ROLE_NAMES.get(seen, message.role) != message.role
    return f"{message.role} ({name})" if poses or not seen else name
