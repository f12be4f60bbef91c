"""`benchmarks/proxy.py` takes the time of requests that are answered, and says what the proxy adds."""

import asyncio
import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import ROOT


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.mark.parametrize("streamed", [False, True])
def test_the_client_reads_what_the_model_answers(streamed: bool) -> None:
    async def ask() -> list[Any]:
        server = await asyncio.start_server(import_module("proxy_model")._serve, "127.0.0.1", 0)
        async with server:
            client = import_module("proxy_client").Client(*server.sockets[0].getsockname())
            taken = [await client.ask("Where to?", "s", streamed=streamed) for _ in range(3)]
            await client.close()
        return taken

    for one in asyncio.run(ask()):
        assert one.status == 200
        assert 0 < one.first <= one.whole


def test_what_is_added_is_the_difference() -> None:
    script = import_module("proxy")
    one = script.Figures(1_000, 32, "stream", [1.0, 2.0, 3.0], [11.0, 13.0, 18.0], 7.0, 0)
    assert one.added == (11.0, 15.0)
    assert script.table([one]).splitlines()[-1] == (
        "| 1,000 | 32 | stream, first byte | 2.0 / 3.0 | 13.0 / 18.0 | 11.0 / 15.0 | 7.0 |"
    )


@pytest.mark.soak
@pytest.mark.skipif("SOAK" not in os.environ, reason="starts processes; SOAK=1 runs it")
def test_all_of_it_at_a_small_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--sizes", "40", "--clients", "1", "2", "--requests", "8", "--sessions", "4"]
    for _ in range(2):  # the stores of the first run are used again
        import_module("proxy").main([*given, "--folder", str(tmp_path), "--json", str(tmp_path / "figures.json")])
    found = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert [(one["messages"], one["clients"], one["kind"], one["failed"]) for one in found["figures"]] == [
        (40, clients, kind, 0) for clients in (1, 2) for kind in ("chat", "stream")
    ]
    assert found["memory"]["MB after"] >= found["memory"]["MB before"] > 10
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["proxy-40-1.db", "proxy-40-2.db"]
    assert "4 conversations:" in capsys.readouterr().out
