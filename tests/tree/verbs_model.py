"""A model of the verbs on branches, in dicts and lists: what a session must look like after each."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shared_core.records import MAIN

__all__ = ["CherryPickResult", "Model", "Node"]


@dataclass(eq=False)
class Node:
    """A place: a message, or without an id a merge; `parents` in order."""

    id: str | None
    parents: tuple["Node", ...] = ()
    role: str = ""
    turn: str = ""
    alive: bool = True
    copy_of: "Node | None" = None
    covers: frozenset["Node"] = frozenset()
    number: int = 0

    @cached_property
    def path(self) -> tuple["Node", ...]:
        """All places from the root on: the first parent's, what only the second has, and this one."""
        line: dict[Node, None] = {}
        for parent in self.parents:
            line |= dict.fromkeys(parent.path)
        return (*line, self) if self.id != "" else ()


@dataclass
class CherryPickResult:
    """What a copying verb must return."""

    sources: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


class Model:
    """A session and one object that stands in it."""

    def __init__(self) -> None:
        self.root = Node("")
        self.nodes: list[Node] = []
        self.branches: dict[str, Node] = {MAIN: self.root}
        self.tags: dict[str, Node] = {}
        self.moves: dict[str, list[Node]] = {}
        self.stashes: list[tuple[str, Node, Node]] = []
        self.branch: str | None = MAIN
        self.detached = self.root

    # Reading

    @property
    def head(self) -> Node:
        return self.branches[self.branch] if self.branch is not None else self.detached

    def seen(self, head: Node | None = None) -> list[Node]:
        return [node for node in (head or self.head).path if node.id is not None and node.alive]

    def ids(self, nodes: Iterable[Node]) -> list[str]:
        return [node.id for node in nodes if node.id is not None and node.alive]

    def only(self, one: Node, other: Node) -> list[Node]:
        there = set(other.path)
        return [node for node in one.path if node not in there]

    def base(self, one: Node, other: Node) -> str | None:
        there = set(other.path)
        return next((id_ for id_ in reversed(self.ids(node for node in one.path if node in there))), None)

    def prompt(self) -> list[str]:
        """The ids of a prompt with room for everything: by turn, in the order in which turns were opened."""
        seen = self.seen()
        asked = [node.id for node in seen if node.role == "user"]
        return [str(node.id) for turn in asked for node in seen if node.turn == turn]

    def greetings(self) -> list[str]:
        """The ids of what an assistant said in no turn of a question; it is sent if it came before the first one."""
        return [str(node.id) for node in self.seen() if node.role == "assistant" and node.turn == node.id]

    # Writing

    def point(self, node: Node) -> None:
        if self.branch is None:
            taken = {*self.branches, *self.tags}
            self.branch = next(name for n in range(1, 10**6) if (name := f"branch-{n}") not in taken)
        self.branches[self.branch] = node

    def add(self, id_: str, role: str, turn: str | None = None, **more: object) -> Node:
        users = [node.turn for node in self.seen() if node.role == "user"]
        turn = id_ if role == "user" else turn or (users[-1] if users else id_)
        parents = (self.head,)
        node = Node(id_, parents, role, turn, number=len(self.nodes), **more)  # type: ignore[arg-type]
        self.nodes.append(node)
        self.point(node)
        return node

    def log(self, branch: str, name: str | None = None) -> None:
        self.moves.setdefault(name or branch, []).insert(0, self.branches[branch])

    def log_head(self) -> None:
        """Note where the branch ends; a detached head becomes one."""
        self.point(self.head)
        assert self.branch is not None
        self.log(self.branch)

    def move(self, to: Node) -> None:
        if self.branch is None:
            self.detached = to
            return
        self.log(self.branch)
        self.branches[self.branch] = to

    def stand(self, branch: str | None, node: Node | None = None) -> None:
        self.branch, self.detached = branch, node or self.root

    def rename(self, name: str, to: str) -> None:
        self.branches = {to if branch == name else branch: node for branch, node in self.branches.items()}
        self.moves[to] = self.moves.pop(name, []) + self.moves.get(to, [])
        self.stashes = [(to if branch == name else branch, tip, base) for branch, tip, base in self.stashes]
        self.branch = to if self.branch == name else self.branch

    def delete(self, name: str) -> None:
        self.log(name)
        del self.branches[name]

    def make_main(self) -> None:
        if self.branch == MAIN:
            return
        old, new, branch = self.branches[MAIN], self.head, self.branch
        if old is not new:
            self.log(MAIN)
            if branch is not None:
                self.log(branch)
                self.branches[branch] = old
            elif old is not self.root and old not in new.path:
                self.point(old)
            self.branches[MAIN] = new
        self.branch = MAIN

    def rewind(self, after: Node | None) -> str | None:
        """End the branch earlier; return the name of the new branch."""
        if self.branch is None:
            raise ValueError("detached")
        path = self.head.path
        after = self.root if after is None else after
        if after is not self.root and after not in path:
            raise LookupError("it is not on this branch")
        if after is not self.root and set(after.path) != set(path[: path.index(after) + 1]):
            raise ValueError("a merge brought it in")
        if not self.ids(self.only(self.head, after)):
            return self.branch
        taken = {*self.branches, *self.tags}
        name = next(name for n in range(2, 10**6) if (name := f"{self.branch}-{n}") not in taken)
        self.branches[name] = self.head
        self.move(after)
        return name

    # Merging

    def merge(self, source: Node, how: str, new_ids: Callable[[], Sequence[str]]) -> str:
        """Merge; return what must have been done. `new_ids` are those that the memory gave to question and answer."""
        head, new = self.head, self.only(source, self.head)
        if how == "squash":
            summed_up = {node for summary in self.seen() for node in summary.covers}
            new = [node for node in new if node not in summed_up]
        if not self.ids(new):
            return "nothing"
        behind = not self.only(head, source)
        if how == "fast-forward" and not behind:
            raise ValueError("it has messages of its own")
        if how in ("auto", "fast-forward") and behind:
            self.move(source)
            return "fast-forward"
        if how != "squash":
            self.log_head()
            assert self.branch is not None
            self.branches[self.branch] = Node(None, (head, source))
        if how == "squash":
            self.log_head()
        if how in ("squash", "three-way"):
            covers = frozenset(new if how == "squash" else [*self.only(head, source), *new])
            question, answer = new_ids()
            self.add(question, "user", covers=covers)
            self.add(answer, "assistant", question, covers=covers)
        return "full" if how == "auto" else how

    # Copying

    def family(self, node: Node) -> list[Node]:
        first = node
        while first.copy_of is not None and first.copy_of.alive:
            first = first.copy_of
        found, new = [first], [first]
        while new:
            new = [node for node in self.nodes if node.alive and node.copy_of in new and node not in found]
            found += new
        return sorted(found, key=lambda node: node.number)

    def copy(
        self, nodes: Sequence[Node], onto: Node, new_ids: Callable[[], Sequence[str]], *, log: bool = True
    ) -> CherryPickResult:
        """Copy messages to the head, which is, or will be, `onto`."""
        there = set(onto.path)
        wanted = sorted(set(nodes), key=lambda node: node.number)
        skipped = [node for node in wanted if there.intersection(self.family(node))]
        turns: dict[str, list[Node]] = {}
        for node in wanted:
            if node not in skipped:
                turns.setdefault(node.turn, []).append(node)
        homes: dict[str, Node | None] = {}
        for turn in turns:
            openers = [node for node in self.nodes if node.alive and node.id == turn and node.role == "user"]
            line = [other for opener in openers for other in [opener, *self.family(opener)] if other in there]
            homes[turn] = line[0] if line else None
        homeless = [turn for turn, nodes in turns.items() if nodes[0].role != "user" and homes[turn] is None]
        blocks: dict[str | Node, list[Node]] = {}
        for turn, nodes in turns.items():
            home = homes[turn]
            if turn not in homeless:
                blocks.setdefault(turn if nodes[0].role == "user" or home is None else home, []).extend(nodes)
        order = [node for nodes in [*(turns[turn] for turn in homeless), *blocks.values()] for node in nodes]
        copies: dict[str, str] = {}
        if order and log:
            self.log_head()
        for source, id_ in zip(order, new_ids() if order else (), strict=True):
            home = homes[source.turn]
            joined = copies.get(source.turn) or (home.turn if home is not None else None)
            self.add(id_, source.role, None if source.turn in homeless else joined, copy_of=source)
            if source.role == "user":
                copies[source.turn] = id_
        return CherryPickResult(self.ids(order), self.ids(skipped))

    def rebase(self, onto: Node, since: Node, new_ids: Callable[[], Sequence[str]]) -> CherryPickResult:
        if since is onto and (onto in self.head.path or onto is self.root):
            return CherryPickResult()
        after = set(since.path)
        own = [node for node in self.only(self.head, onto) if node not in after]
        self.move(onto)
        return self.copy([node for node in own if node.id is not None and node.alive], onto, new_ids, log=False)

    def stash(self, since: Node | None) -> list[str] | None:
        path = self.head.path
        if since is not None:
            if since is not self.root and since not in path:
                raise LookupError("it is not on this branch")
            if since is not self.root and set(since.path) != set(path[: path.index(since) + 1]):
                raise ValueError("a merge brought it in")
            return self.put(since) if self.ids(self.only(self.head, since)) else None
        user = next((n for n in reversed(range(len(path))) if path[n].role == "user" and path[n].alive), None)
        if user is None:
            return None
        base = path[user - 1] if user else self.root
        if base is not self.root and set(base.path) != set(path[:user]):
            raise ValueError("a merge brought it in")
        return self.put(base)

    def put(self, base: Node) -> list[str]:
        """Put what comes after a place aside."""
        self.stashes.insert(0, (self.branch or "", self.head, base))
        gone = self.ids(self.only(self.head, base))
        self.move(base)
        return gone

    def put_aside(self, number: int) -> list[Node]:
        _, tip, base = self.stashes[number]
        return [node for node in self.only(tip, base) if node.id is not None and node.alive]

    # Forgetting

    def forget(self, node: Node) -> list[str]:
        gone, new = [node], [node]
        while new:
            new = [
                other
                for other in self.nodes
                if other.alive and other not in gone and (other.copy_of in gone or not other.covers.isdisjoint(gone))
            ]
            gone += new
        for other in gone:
            other.alive = False
        return [str(other.id) for other in sorted(gone, key=lambda other: other.number)]
