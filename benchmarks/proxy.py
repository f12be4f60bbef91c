"""What `infinite-memory serve` adds to a request: `python benchmarks/proxy.py [--json FILE] [--folder FOLDER]`.

A model server that answers at once is asked directly, and through the proxy, in turns, by one client and by 32 at a
time, which talk in a conversation each, in a store of 1,000 and of 100,000 messages in all. The clients name their
conversation and send only what is new, or with `--whole` all of it; the prompt has the default 4,096 tokens, and recall
is on. Clients, model and proxy are a process each, which share the machine's processors.

What is added is the difference of the medians, and of the 95th percentiles; of a stream, until its first byte. "Of the
processor" is what the proxy's process works for a request; it changes less if the machine has other work. The stores
are filled through the package. With `--folder`, they stay there and are used again: each run works on a copy.

`--sizes`, `--clients` and `--requests` measure a part; `--sessions N` is how many conversations are begun at the end,
eight at a time, to see how much memory the proxy holds then. Prints Markdown tables; `--json FILE` writes all figures.
"""

import argparse
import asyncio
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

from latency_clock import p50, p95
from latency_talk import conversation, in_chunks, turns
from proxy_client import Client, Taken
from proxy_model import ADDRESS, WORDS

from shared_core import SessionPool

__all__ = ["Figures", "main", "table"]

SIZES = [1_000, 100_000]
CLIENTS = [1, 32]
REQUESTS = 320
"""How many are sent each way, by all clients together."""

BLOCK = 4
"""How many requests each client sends one way before it sends as many the other way."""

WARM = 4
"""How many requests each client sends before it is measured."""

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
HERE = Path(__file__).parent
ROOT = HERE.parent


@dataclass(frozen=True)
class Figures:
    """How long requests took, in milliseconds.

    Attributes:
        messages: how many were stored.
        clients: how many asked at a time.
        kind: `chat` or `stream`, of which the first byte is awaited.
        bare: of the model itself.
        proxied: through the proxy.
        processor: the time that the proxy's process worked, for each request.
        failed: how many requests were not answered.
    """

    messages: int
    clients: int
    kind: str
    bare: list[float]
    proxied: list[float]
    processor: float
    failed: int

    @property
    def added(self) -> tuple[float, float]:
        """What the proxy adds to the median and to the 95th percentile."""
        return p50(self.proxied) - p50(self.bare), p95(self.proxied) - p95(self.bare)


class Process:
    """A process that says its address in a line of its output.

    Args:
        command: the arguments of Python.
        address: finds it.
    """

    def __init__(self, command: Sequence[str], address: str) -> None:
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
        self._said = subprocess.Popen(
            [sys.executable, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._said.stdout is not None
        found = next((found for line in self._said.stdout if (found := re.search(address, line))), None)
        if found is None:
            raise RuntimeError(f"{command} ended with {self._said.wait()}")
        self.host, self.port = found[1], int(found[2])

    def worked(self) -> float:
        """Return the milliseconds of the processor that it has worked."""
        fields = Path(f"/proc/{self._said.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000 / TICKS

    def resident(self) -> float:
        """Return the megabytes that it holds."""
        lines = Path(f"/proc/{self._said.pid}/status").read_text()
        return int(lines.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6

    def close(self) -> None:
        """End it."""
        self._said.kill()
        self._said.communicate()


@contextmanager
def served(store: Path, model: Process) -> Iterator[Process]:
    """Run the proxy before a model; its log goes to a file, as that of a service."""
    command = ["-m", "shared_core", "serve", "--store", str(store), "--port", "0", "--max-tokens", "4096"]
    command += ["--upstream", f"http://{model.host}:{model.port}/v1", "--max-requests", "128"]
    log = store.with_suffix(".log")
    runner = ["-c", _RUNNER, str(log), *command[2:]]
    with closing(Process(runner, r"at http://(\S+):(\d+)/v1")) as proxy:
        yield proxy


_RUNNER = """
import os, sys
from shared_core.doors.cli import printing, serve_commands
say = serve_commands.say
def told(text):
    say(text)
    out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1), os.dup2(out, 2)
serve_commands.say = told
from shared_core.doors.cli.command import run
sys.exit(run(sys.argv[2:]))
"""


def filled(folder: Path, size: int, clients: int) -> Path:
    """Return a store with so many messages in a conversation for each client; it is filled if it is not there."""
    path = folder / f"proxy-{size}-{clients}.db"
    if path.exists():
        return path
    making = path.with_suffix(".making")
    for left in folder.glob(f"{making.name}*"):
        left.unlink()
    with SessionPool(making) as pool:
        for number in range(clients):
            with pool.use(f"talk-{number}") as memory:
                for chunk in in_chunks(conversation(size // clients, seed=7 + number)):
                    memory.add(chunk)
                memory.index()
    making.rename(path)
    return path


async def asked(
    ways: Sequence[Client], number: int, questions: Sequence[str], history: list[dict[str, str]] | None, *,
    streamed: bool, blocks: int,
) -> list[list[Taken]]:  # fmt: skip
    """Ask each way in turns; return how long each request took, by way.

    With a history, it is sent before each question, which it grows by.
    """
    taken: list[list[Taken]] = [[] for _ in ways]
    texts = cycle(questions)
    for block in range(blocks):
        for way, client in enumerate(ways) if block % 2 else reversed([*enumerate(ways)]):
            for _ in range(BLOCK):
                text = next(texts)
                taken[way].append(await client.ask(text, f"talk-{number}", streamed=streamed, before=history or ()))
                if history is not None and way == len(ways) - 1:
                    answer = {"role": "assistant", "content": " ".join(WORDS)}
                    history += [{"role": "user", "content": text}, answer]
    return taken


async def compared(
    model: Process, proxy: Process, size: int, clients: int, requests: int, *, whole: bool
) -> list[Figures]:
    """Measure both kinds of requests."""
    stored = [conversation(size // clients, seed=7 + number) for number in range(clients)] if whole else []
    histories = [[{"role": one.role, "content": one.content} for one in said] for said in stored]
    pairs = [(Client(model.host, model.port), Client(proxy.host, proxy.port)) for _ in range(clients)]
    found = []
    for streamed in (False, True):
        said = [[asked.content for asked, _ in turns(60, seed=100 + number)] for number in range(clients)]
        for number, (_, proxied) in enumerate(pairs):
            await asked((proxied,), number, said[number][:WARM], _of(histories, number), streamed=streamed, blocks=1)
        blocks = max(2, requests // (clients * BLOCK))
        worked = proxy.worked()
        rounds = await asyncio.gather(
            *(
                asked(pair, n, said[n][WARM:], _of(histories, n), streamed=streamed, blocks=blocks)
                for n, pair in enumerate(pairs)
            )
        )
        worked = proxy.worked() - worked
        ways = [[one for taken in rounds for one in taken[way]] for way in (0, 1)]
        failed = sum(one.status != 200 for way in ways for one in way)
        bare, through = ([(one.first if streamed else one.whole) * 1_000 for one in way] for way in ways)
        kind = "stream" if streamed else "chat"
        found.append(Figures(size, clients, kind, bare, through, worked / len(through), failed))
    for pair in pairs:
        for client in pair:
            await client.close()
    return found


def _of(histories: Sequence[list[dict[str, str]]], number: int) -> list[dict[str, str]] | None:
    return histories[number] if histories else None


async def begun(proxy: Process, sessions: int) -> dict[str, float]:
    """Begin conversations, eight at a time; return the proxy's memory before and after."""
    before, numbers = proxy.resident(), iter(range(sessions))

    async def begin() -> None:
        client = Client(proxy.host, proxy.port)
        for number in numbers:
            await client.ask(f"What do I know of the harbour number {number}?", f"new-{number}", streamed=False)
        await client.close()

    await asyncio.gather(*(begin() for _ in range(8)))
    return {"sessions": sessions, "MB before": before, "MB after": proxy.resident()}


def table(found: Sequence[Figures]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        "| messages | clients | request | model alone, p50 / p95 ms | with the proxy | added | of the processor |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for one in found:
        kind = "whole" if one.kind == "chat" else "stream, first byte"
        spans = [f"{p50(times):.1f} / {p95(times):.1f}" for times in (one.bare, one.proxied)]
        spans += [" / ".join(f"{added:.1f}" for added in one.added), f"{one.processor:.1f}"]
        lines.append(f"| {one.messages:,} | {one.clients} | {kind} | {' | '.join(spans)} |")
    return "\n".join(lines)


def measured(options: argparse.Namespace, folder: Path) -> tuple[list[Figures], dict[str, float]]:
    """Measure everything, with the stores of a folder."""
    found: list[Figures] = []
    with closing(Process([str(HERE / "proxy_model.py")], ADDRESS)) as model, TemporaryDirectory(dir=folder) as name:
        for size in options.sizes:
            for clients in options.clients:
                store = Path(shutil.copy(filled(folder, size, clients), name))
                with served(store, model) as proxy:
                    found += asyncio.run(compared(model, proxy, size, clients, options.requests, whole=options.whole))
                    print(f"{size:,} messages, {clients} clients: done", file=sys.stderr)
        with served(Path(name) / "new.db", model) as proxy:
            asyncio.run(begun(proxy, 10))  # what the first requests load stays
            memory = asyncio.run(begun(proxy, options.sessions))
    return found, memory


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--clients", type=int, nargs="*", default=CLIENTS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--whole", action="store_true", help="send the whole history with each request")
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found, memory = measured(options, folder)
    print(table(found))
    held = f"{memory['MB before']:.0f} MB before, {memory['MB after']:.0f} MB after"
    print(f"\n{memory['sessions']:,.0f} conversations: {held}")
    print(f"{time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.1f}; {sum(one.failed for one in found)} failed")
    if options.json is not None:
        machine = {"python": platform.python_version(), "processors": os.cpu_count(), "load": os.getloadavg()[0]}
        figures = [{**asdict(one), "added": one.added} for one in found]
        options.json.write_text(
            json.dumps({"machine": machine, "memory": memory, "figures": figures}), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
