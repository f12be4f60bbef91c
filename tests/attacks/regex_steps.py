"""A regular expression matched as the standard library does, by backtracking, with its steps counted; no clock."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from re import _constants as sre  # type: ignore[attr-defined]  # isort: skip
from re import _parser as parser  # type: ignore[attr-defined]  # isort: skip

Items = Sequence[tuple[Any, Any]]

REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
ONE_CHARACTER = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
OFTEN = 30
"""A repetition of at most so many is a constant."""

POOL = "aA1 \n.,-'!?_:<>[(\u0301é東\x00"
"""Characters that most classes tell apart."""


class TooManyStepsError(Exception):
    """A match takes more steps than the limit."""


class Counted:
    """A pattern that counts its steps.

    Args:
        pattern: the pattern.
        limit: the most steps of one text.
    """

    def __init__(self, pattern: re.Pattern[str], limit: int = 3_000_000) -> None:
        self.flags = pattern.flags
        self.items: Items = list(parser.parse(pattern.pattern, pattern.flags))
        self.limit, self.steps = limit, 0
        self.text = ""
        self.groups: dict[int, str] = {}
        self._accepts = lru_cache(maxsize=None)(self._uncached_accepts)
        self._nodes: dict[int, Any] = {}

    def count(self, text: str, *, anchored: bool) -> int:
        """Return the steps of all matches in a text; `anchored`: of one at its beginning."""
        self.text, self.steps, position = text, 0, 0
        while position <= len(text):
            end = next(self._sequence(self.items, 0, position), None)
            if anchored:
                break
            position = position + 1 if end is None or end == position else end
        return self.steps

    def accepts(self, item: tuple[Any, Any], char: str) -> bool:
        """Return whether an item of one character accepts it."""
        self._nodes[id(item[1])] = item
        return self._accepts(item[0], id(item[1]), char)

    def _uncached_accepts(self, op: Any, node: int, char: str) -> bool:
        value = self._nodes[node][1]
        if self.flags & re.IGNORECASE:
            return any(self._is(op, value, form) for form in {char, char.lower(), char.upper()} if len(form) == 1)
        return self._is(op, value, char)

    def _is(self, op: Any, value: Any, char: str) -> bool:
        if op is sre.ANY:
            return char != "\n" or bool(self.flags & re.DOTALL)
        if op in (sre.LITERAL, sre.NOT_LITERAL):
            return (ord(char) == value) is (op is sre.LITERAL)
        found = any(_in_class(kind, what, char) for kind, what in value)
        return found is not (value[0][0] is sre.NEGATE)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self.limit:
            raise TooManyStepsError

    def _sequence(self, items: Items, index: int, position: int) -> Iterator[int]:
        if index == len(items):
            yield position
            return
        for middle in self._item(items[index], position):
            yield from self._sequence(items, index + 1, middle)

    def _item(self, item: tuple[Any, Any], position: int) -> Iterator[int]:
        op, value = item
        self._step()
        if op in ONE_CHARACTER:
            if position < len(self.text) and self.accepts(item, self.text[position]):
                yield position + 1
        elif op in REPEATS:
            yield from self._repeat(op, value, position)
        else:
            yield from self._group(op, value, position)

    @staticmethod
    def _first(ends: Iterator[int]) -> Iterator[int]:
        for end in ends:
            yield end
            return

    def _group(self, op: Any, value: Any, position: int) -> Iterator[int]:
        match op:
            case sre.BRANCH:
                for option in value[1]:
                    yield from self._sequence(option, 0, position)
            case sre.SUBPATTERN:
                yield from self._sequence(value[-1], 0, position)
            case sre.ATOMIC_GROUP:
                yield from self._first(self._sequence(value, 0, position))
            case sre.ASSERT | sre.ASSERT_NOT | sre.AT:
                if self._at(value, position) if op is sre.AT else self._looks(value, position) is (op is sre.ASSERT):
                    yield position
            case _:
                raise NotImplementedError(op)

    def _looks(self, value: tuple[int, Any], position: int) -> bool:
        direction, items = value
        if direction > 0:
            return next(self._sequence(items, 0, position), None) is not None
        least, most = items.getwidth()
        starts = range(position - most, position - least + 1)
        return any(position in self._sequence(items, 0, start) for start in starts if start >= 0)

    def _at(self, what: Any, position: int) -> bool:
        text = self.text
        at_start, at_end = position == 0, position == len(text)
        match what:
            case sre.AT_BEGINNING | sre.AT_BEGINNING_STRING:
                multiline = self.flags & re.MULTILINE and what is sre.AT_BEGINNING
                return at_start or bool(multiline and text[position - 1] == "\n")
            case sre.AT_END:
                return at_end or (text[position] == "\n" and (position + 1 == len(text) or bool(self.flags & re.M)))
            case sre.AT_END_STRING:
                return at_end
        inside = (not at_start and _is_word(text[position - 1])) is not (not at_end and _is_word(text[position]))
        return inside is (what is sre.AT_BOUNDARY)

    def _repeat(self, op: Any, value: tuple[int, int, Items], position: int) -> Iterator[int]:
        least, most, body = value
        if len(body) == 1 and body[0][0] in ONE_CHARACTER:
            ends = self._run(op, least, most, body[0], position)
        elif op is sre.MIN_REPEAT:
            ends = self._lazily(least, most, body, position)
        else:
            ends = self._greedily(least, most, body, position)
        yield from self._first(ends) if op is sre.POSSESSIVE_REPEAT else ends

    def _run(self, op: Any, least: int, most: int, item: tuple[Any, Any], position: int) -> Iterator[int]:
        limit, end = min(len(self.text), position + most), position
        if op is sre.MIN_REPEAT:
            while True:
                if end - position >= least:
                    yield end
                self._step()
                if end >= limit or not self.accepts(item, self.text[end]):
                    return
                end += 1
        while end < limit and self.accepts(item, self.text[end]):
            self._step()
            end += 1
        for back in range(end, position + least - 1, -1):
            self._step()
            yield back

    def _greedily(self, least: int, most: int, body: Items, position: int) -> Iterator[int]:
        if most > 0:
            for end in self._sequence(body, 0, position):
                if end > position or least > 0:
                    yield from self._greedily(max(0, least - 1), most - 1, body, end)
        if least <= 0:
            self._step()
            yield position

    def _lazily(self, least: int, most: int, body: Items, position: int) -> Iterator[int]:
        if least <= 0:
            self._step()
            yield position
        if most > 0:
            for end in self._sequence(body, 0, position):
                if end > position or least > 0:
                    yield from self._lazily(max(0, least - 1), most - 1, body, end)

    # The worst texts

    def attacks(self) -> Iterator[Callable[[int], str]]:
        """Yield functions that return a text of a length, in which what a pattern repeats is repeated most."""
        made: set[tuple[str, str, str]] = set()
        for before, body in self._repeated(self.items, ""):
            for pump in self._examples(body):
                for start, unit in ((before, pump), ("", pump), ("", before + pump), ("", before or pump)):
                    for end in ("", "\x00"):
                        if unit and (start, unit, end) not in made:
                            made.add((start, unit, end))
                            yield lambda size, s=start, u=unit, e=end: s + u * (size // min(len(u), 12)) + e  # type: ignore[misc]

    def _repeated(self, items: Items, before: str) -> Iterator[tuple[str, Items]]:
        """Yield what is repeated without a limit, with a text that leads there."""
        for item in items:
            op, value = item
            if op in REPEATS:
                if value[1] > OFTEN:
                    yield before, value[2]
                yield from self._repeated(value[2], before)
            elif op is sre.BRANCH:
                for option in value[1]:
                    yield from self._repeated(option, before)
            elif op in (sre.SUBPATTERN, sre.ATOMIC_GROUP, sre.ASSERT, sre.ASSERT_NOT):
                yield from self._repeated(value if op is sre.ATOMIC_GROUP else value[-1], before)
            before += next(iter(self._examples([item])), "")

    def _examples(self, items: Items, most: int = 6) -> list[str]:
        """Return some texts that items match."""
        texts = [""]
        for item in items:
            texts = [text + more for text in texts for more in self._examples_of(item, most) or [""]][:most]
        return texts

    def _examples_of(self, item: tuple[Any, Any], most: int) -> list[str]:
        op, value = item
        if op in ONE_CHARACTER:
            chars = [*POOL, *(chr(ord(char)) for char in _letters(item))]
            return [char for char in dict.fromkeys(chars) if self.accepts(item, char)][:most]
        if op in REPEATS:
            return [text * max(1, value[0]) for text in self._examples(value[2], most)]
        if op is sre.BRANCH:
            return [text for option in value[1] for text in self._examples(option, 1)][:most]
        if op in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            return self._examples(value if op is sre.ATOMIC_GROUP else value[-1], most)
        return [""]


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _letters(item: tuple[Any, Any]) -> str:
    """Return the characters that an item of one character names."""
    op, value = item
    if op is sre.LITERAL:
        return chr(value)
    named = ((kind, what) for kind, what in value) if op is sre.IN else iter(())
    return "".join(
        chr(what if kind is sre.LITERAL else what[0]) for kind, what in named if kind in (sre.LITERAL, sre.RANGE)
    )


def _in_class(kind: Any, what: Any, char: str) -> bool:
    if kind is sre.LITERAL:
        return bool(ord(char) == what)
    if kind is sre.RANGE:
        return bool(what[0] <= ord(char) <= what[1])
    if kind is not sre.CATEGORY:
        return False
    name = str(what)
    found = _is_word(char) if name.endswith("WORD") else char.isdecimal() if name.endswith("DIGIT") else char.isspace()
    return found is not ("NOT" in name)
