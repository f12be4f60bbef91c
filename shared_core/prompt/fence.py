"""Foreign text made safe to stand between the tags of a record: it can neither close it nor pose as more; pure."""

import re
from functools import lru_cache
from unicodedata import normalize

from shared_core.formats.fields import ROLE_NAMES
from shared_core.messages import Message

_TAG = re.compile(r"([<\[])[/|]?\s*([^\W\d_][\w-]*)")
"""The beginning of a tag in a wording: `<old>`, `</old>`, `<|old|>`, `[old]` or `[/old]`."""

_OPENS = {"<": "<\uff1c\ufe64", "[": "[\uff3b"}
"""The signs that open a tag, each with its full-width and small forms."""

_ESCAPED = {sign: "&lt;" if opens == "<" else "&#91;" for opens, signs in _OPENS.items() for sign in signs}
"""What replaces such a sign."""

_UNSEEN = (
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff]"
)
"""Characters that take no place: a reader, and most tokenizers, see the word without them."""

_FIRST_WORD = re.compile(r"\w+(?=\s*+(?:$|[^\w\s.'-]))")
"""The first word of a name if no other follows it: "assistant", and the beginning of "assistant: as I said"."""

_LINE_BREAKS = re.compile("\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
"""What begins a new line, as in `str.splitlines`."""


def defused(text: str, wording: str) -> str:
    """Return a text in which the tags of the wording around it are escaped, in any case, spacing and width."""
    for signs, fence in _fences(wording):
        if any(map(text.__contains__, signs)):
            text = fence.sub(lambda found: _ESCAPED[found[0]], text)
    return text


@lru_cache(maxsize=16)
def _fences(wording: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return patterns for the beginnings of the wording's own tags, each with the signs that they begin with.

    They cannot backtrack, so they take linear time.
    """
    blank = rf"(?:\s|{_UNSEEN})*+"
    fences = []
    for opens, signs in _OPENS.items():
        names = sorted({name for sign, name in _TAG.findall(wording) if sign == opens})
        spelled = "|".join("".join(f"{_letter(letter)}{_UNSEEN}*+" for letter in name) for name in names)
        pattern = rf"[{re.escape(signs)}](?={blank}[/|\uff0f\uff5c]?{blank}(?:{spelled})(?!\w))"
        fences += [(signs, re.compile(pattern))] if names else []
    return tuple(fences)


def _letter(letter: str) -> str:
    """Return a class of the forms of a character: in both cases and, if it is ASCII, narrow and full-width."""
    forms = {form for form in (letter.lower(), letter.upper()) if len(form) == 1} or {letter}
    wide = {chr(ord(form) + 0xFEE0) for form in forms if form.isascii()}
    return f"[{''.join(map(re.escape, sorted(forms | wide)))}]"


def folded(text: str, continuation: str) -> str:
    """Return a text whose lines after the first begin with `continuation`, which starts with a line feed."""
    # `splitlines` looks for the same breaks in a thirtieth of the time; it ignores one at the end.
    return _LINE_BREAKS.sub(continuation, text) if len(f"{text}.".splitlines()) > 1 else text


def speaker(message: Message) -> str:
    """Return who says a message: the name, or the role; both, if the name is that of another role or begins with it."""
    if message.name is None:
        return message.role
    name = " ".join(message.name.split())
    seen = re.sub(_UNSEEN, "", normalize("NFKC", name)).strip().casefold()
    posed = _FIRST_WORD.match(seen)
    poses = posed is not None and ROLE_NAMES.get(posed[0], message.role) != message.role
    return f"{message.role} ({name})" if poses or not seen else name
