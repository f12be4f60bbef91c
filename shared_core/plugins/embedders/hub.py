"""The Hugging Face hub: models in its cache, and one quick attempt to find a model online."""

import os
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from shared_core.errors import EmbedderError
from shared_core.runtime.threads import in_time

SECONDS = 5.0
"""How long the hub may take to say whether it has a model. Its own client would try again for minutes."""

ORGANIZATION = "sentence-transformers"
"""The organization of models that are named without one."""

KNOWN = ("words", "static", "all-MiniLM-L6-v2", "all-MiniLM-L6-v2-int8")

MARKS = ("modules.json", "config.json")
"""Files of which every sentence-transformers model has at least one."""


def full_name(model: str) -> str:
    """Return the name of a model on the hub, with its organization."""
    return model if "/" in model else f"{ORGANIZATION}/{model}"


def unknown(model: str, reason: str) -> str:
    """Return the message for a model that cannot be had: the reason, a name that is similar, and all choices."""
    similar = get_close_matches(model, KNOWN, n=1)
    suggestion = f"Did you mean {similar[0]!r}? " if similar else ""
    return (
        f"embedder={model!r}: {reason}. {suggestion}Choose {', '.join(map(repr, KNOWN))}, the folder or the hub name "
        "of a sentence-transformers model, or a CallableEmbedder"
    )


def cached(name: str, file: str, revision: str | None = None) -> Path | None:
    """Return a file of a model in the cache of this machine; None if it is not there.

    Args:
        name: the model's full name on the hub.
        file: the name of the file.
        revision: the model's revision. None: the newest in the cache.
    """
    from huggingface_hub import try_to_load_from_cache

    for folder in (None, os.environ.get("SENTENCE_TRANSFORMERS_HOME")):
        found = try_to_load_from_cache(name, file, cache_dir=folder, revision=revision)
        if isinstance(found, str):
            return Path(found)
    return None


def confirm(model: str, revision: str | None = None) -> None:
    """Return if a model can be loaded: from a folder or the cache, or from the hub, which says at once that it has it.

    Args:
        model: a folder or a name on the hub, without an organization one of sentence-transformers.
        revision: the model's revision on the hub. None: the newest.

    Raises:
        EmbedderError: it is nowhere, or the hub does not answer within `SECONDS`.
    """
    reason = _missing_from_folder(Path(model)) if os.path.isdir(model) else _missing_from_hub(model, revision)
    if reason is not None:
        raise EmbedderError(unknown(model, reason))


def download(name: str, file: str) -> Path:
    """Return a file of a model, from the cache or else from the hub.

    Raises:
        EmbedderError: the hub does not have it, or does not answer within `SECONDS`.
        OSError: the download failed.
    """
    from huggingface_hub import hf_hub_download

    if (found := cached(name, file)) is not None:
        return found
    if reason := _missing_from_hub(name, None):
        raise EmbedderError(reason)
    return Path(hf_hub_download(name, file))


def _missing_from_folder(folder: Path) -> str | None:
    if any((folder / file).is_file() for file in MARKS):
        return None
    return f"the folder holds no model: no file {' or '.join(MARKS)}"


def _missing_from_hub(model: str, revision: str | None) -> str | None:
    if not model.strip() or model.count("/") > 1 or model[0] in "./~" or "\\" in model:
        return "there is no such folder"
    name = full_name(model)
    try:
        if any(cached(name, file, revision) for file in MARKS):
            return None
    except ValueError:  # huggingface-hub's own error of names
        return "there is no such folder, and no model has such a name"
    try:  # with a time limit, because looking up the hub's address has none of its own
        return in_time(partial(_asked, name, revision), SECONDS, "hub")
    except Exception as error:  # whatever the client and its transport raise means the same here, and is named
        why = f"{type(error).__name__}: {str(error) or f'no answer within {SECONDS:g} s'}".splitlines()[0]
        return f"not on this machine, and the Hugging Face hub does not say that it has it ({why[:250]})"


def _asked(name: str, revision: str | None) -> str | None:
    """Ask the hub for a model. Return None if it has it, else the reason."""
    from huggingface_hub import HfApi
    from huggingface_hub import utils as untyped

    errors: Any = untyped
    try:
        HfApi().model_info(name, revision=revision, timeout=SECONDS)
    except errors.RepositoryNotFoundError:
        return "neither on this machine nor on the Hugging Face hub"
    return None
