"""tiktoken's counters. Their tables are found on this machine or downloaded, with a time limit."""

import base64
import hashlib
import importlib.util
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shared_core.errors import warn
from shared_core.plugins.base import OVERHEAD
from shared_core.runtime.threads import in_time
from shared_core.tokens.conservative import ConservativeCounter

if TYPE_CHECKING:
    from tiktoken import Encoding

DOWNLOAD_SECONDS = 30.0
"""How long tiktoken may take to load a table. Its request has no timeout; a late end still fills its cache."""

BLOCK = 20_000
"""The largest number of characters that are passed to tiktoken at once; see `_blocks`."""


class TokenFallbackWarning(UserWarning):
    """A tiktoken table is not available, so the conservative counter is used, and prompts come out smaller."""


class TiktokenCounter:
    """Counts exactly as OpenAI's models do. Special tokens in the text count as text.

    The table is read when the first counter is created, once per process: from tiktoken's cache, from the copy that
    LlamaIndex ships, or else downloaded by tiktoken. If all of that fails, a `TokenFallbackWarning` is given once, and
    the counter counts as a `ConservativeCounter`, and has its name, for the rest of the process.

    Args:
        name: a tiktoken encoding, or a model that tiktoken knows. Anything else is a `ValueError`.
    """

    name: str | None
    overhead = OVERHEAD

    def __init__(self, name: str = "o200k_base") -> None:
        encoding_name = _encoding_name(name)
        encoding = _encoding(encoding_name)
        self._count: Callable[[str], int]
        if encoding is None:
            self._count = ConservativeCounter()
            self.name = ConservativeCounter.name
        else:
            self._count = partial(_count_blocks, encoding)
            self.name = f"tiktoken/{encoding_name}"

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens of `text`."""
        return self._count(text)


def _count_blocks(encoding: "Encoding", text: str) -> int:
    if len(text) <= BLOCK:
        return len(encoding.encode_ordinary(text))
    return sum(len(encoding.encode_ordinary(block)) for block in _blocks(text))


def _blocks(text: str) -> Iterator[str]:
    """Cut a text into blocks of at most `BLOCK` characters.

    tiktoken panics on a million characters of white space, because its regex overflows the stack, and it is slower than
    linear on long runs of anything. A cut before a space that follows a word does not change the count. Without such a
    space, a hard cut adds a token or two.
    """
    start = 0
    while len(text) - start > BLOCK:
        cut = text.rfind(" ", start + 1, start + BLOCK)
        while cut > 0 and text[cut - 1].isspace():
            cut = text.rfind(" ", start + 1, cut)
        end = cut if cut > 0 else start + BLOCK
        yield text[start:end]
        start = end
    yield text[start:]


def _encoding_name(name: str) -> str:
    import tiktoken

    short = name.removeprefix("tiktoken/")
    known = tiktoken.list_encoding_names()
    if short in known:
        return short
    try:
        return tiktoken.encoding_name_for_model(short)
    except KeyError:
        raise ValueError(
            f"tiktoken knows no encoding or model {name!r}; use one of {', '.join(map(repr, known))}, 'characters/4', "
            "'conservative', or a callable(str) -> int"
        ) from None


_lock = threading.Lock()
_loaded: "dict[str, Encoding | None]" = {}


def _encoding(name: str) -> "Encoding | None":
    """Return the encoding, the same object every time. None, with one warning per process: it cannot be loaded."""
    with _lock:
        if name not in _loaded:
            _loaded[name] = None
            try:
                _loaded[name] = in_time(partial(_load, name), DOWNLOAD_SECONDS, "tiktoken-download")
            except (OSError, ValueError) as error:
                warn(
                    f"tiktoken's table {name!r} is not on this machine and cannot be downloaded "
                    f"({type(error).__name__}); "
                    "tokens are over-estimated. Set TIKTOKEN_CACHE_DIR to a folder that holds it, or install "
                    "llama-index-core, which brings cl100k_base and o200k_base.",
                    TokenFallbackWarning,
                )
        return _loaded[name]


def _load(name: str) -> "Encoding":
    import tiktoken.registry

    if name in tiktoken.registry.ENCODINGS:
        return tiktoken.registry.ENCODINGS[name]
    spec = importlib.util.find_spec("tiktoken_ext.openai_public")
    assert spec is not None
    assert spec.loader is not None
    # A private copy of tiktoken's definitions: replacing its reader of tables changes nothing for other users.
    definitions = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(definitions)
    vars(definitions).update(load_tiktoken_bpe=_read_table)
    if name not in definitions.ENCODING_CONSTRUCTORS:
        return tiktoken.get_encoding(name)
    return tiktoken.Encoding(**definitions.ENCODING_CONSTRUCTORS[name]())


def _read_table(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
    """Return a table from the first local folder with an undamaged copy, else as tiktoken does."""
    from tiktoken.load import load_tiktoken_bpe

    for folder in _table_folders():
        try:
            table = (folder / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()).read_bytes()
        except OSError:
            continue
        if hashlib.sha256(table).hexdigest() == expected_hash:
            return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, table.splitlines())}
    return load_tiktoken_bpe(url, expected_hash)


def _table_folders() -> Iterator[Path]:
    """Yield tiktoken's cache folder (none if its setting is empty), then LlamaIndex's folder, without importing it."""
    default = os.environ.get("DATA_GYM_CACHE_DIR", os.path.join(tempfile.gettempdir(), "data-gym-cache"))
    if cache_folder := os.environ.get("TIKTOKEN_CACHE_DIR", default):
        yield Path(cache_folder)
    spec = importlib.util.find_spec("llama_index")
    for folder in (spec and spec.submodule_search_locations) or ():
        yield Path(folder, "core", "_static", "tiktoken_cache")
