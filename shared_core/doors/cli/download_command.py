"""The command that fetches the weights of MiniLM: download."""

import typer

from shared_core.doors.cli.options import CommonOptions, with_options
from shared_core.errors import MissingExtraError, installed
from shared_core.plugins.embedders import onnx_available
from shared_core.plugins.embedders.minilm import FILES, MINILM, fetch

download_commands = typer.Typer()


@download_commands.command()
@with_options
def download(options: CommonOptions) -> None:
    """Fetch the MiniLM model for new conversations.

    all-MiniLM-L6-v2 finds what was said in other words, which the static word vectors hardly do. It needs the extra
    onnx or sentence-transformers. Its files, 92 MB, go into the cache of Hugging Face, where all programs find them;
    nothing is downloaded if they are there. Conversations that have vectors keep those.
    """
    if not onnx_available() and not installed("sentence_transformers"):
        raise MissingExtraError('MiniLM needs onnxruntime: pip install "infinite-memory[onnx]"', name="onnxruntime")
    folder = fetch()
    size = sum((folder / name).stat().st_size for name in FILES)
    lines = [
        f"{MINILM.name} is in {folder} ({size / 1e6:,.0f} MB)",
        "New conversations are searched with it, in all your programs. Those that have vectors keep theirs.",
        'embedder="static" in a program, or INFINITE_MEMORY_EMBEDDER=static in its environment, keeps to word vectors.',
    ]
    options.answer({"model": MINILM.name, "folder": str(folder), "bytes": size}, lines)
