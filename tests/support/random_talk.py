"""A conversation in which anything may happen, for what has to hold after all of it."""

from random import Random

from shared_core import InfiniteMemory, Message
from shared_core.errors import InfiniteMemoryError
from shared_core.records import MAIN, Summary
from shared_core.store import Store
from shared_core.testing import HashingEmbedder
from tests.support.histories import NOON


class RandomTalk:
    """Holds a session and does at random what can be done with it.

    Args:
        store: where it is kept.
        random: decides.
        session: the name of the session.
        user: whose it is.
    """

    def __init__(self, store: Store, random: Random, session: str = "s", user: str | None = None) -> None:
        self.store = store
        self._random = random
        self._count = 0
        self.memory = InfiniteMemory(store, session_id=session, user_id=user, embedder=HashingEmbedder())

    def steps(self, count: int) -> None:
        """Do some things; what cannot be done just now is left out."""
        verbs = (
            self.say, self.say, self.say, self.fork, self.checkout, self.merge, self.tag, self.names, self.reset,
            self.copy, self.stash, self.forget, self.memory.index, self.summarize,
        )  # fmt: skip
        for _ in range(count):
            try:
                self._random.choice(verbs)()
            except (InfiniteMemoryError, ValueError):
                continue

    def say(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            self._count += 1
            question = Message.user(f"What of item {self._count} of {self.memory.session_id}? \0 \ud800 é")
            self.memory.add([question, Message.assistant(f"Item {self._count} is blue.")])

    def _id(self) -> str:
        return self._random.choice([str(message.id) for message in self.memory.messages()] or ["none"])

    def _branch(self) -> str:
        return self._random.choice([branch.name for branch in self.memory.branches()] or [MAIN])

    def fork(self) -> None:
        self.memory.fork(f"b{self._random.randint(0, 9)}", self._random.choice([None, self._id()]))

    def checkout(self) -> None:
        self.memory.checkout(self._branch())

    def merge(self) -> None:
        self.memory.merge(self._branch(), how=self._random.choice(["auto", "full", "squash"]))

    def tag(self) -> None:
        self.memory.tag(f"t{self._random.randint(0, 3)}")

    def names(self) -> None:
        name = f"b{self._random.randint(0, 9)}"
        what = self._random.randrange(4)
        if what == 0:
            self.memory.rename_branch(self._branch(), name)
        elif what == 1:
            self.memory.delete_branch(name)
        elif what == 2:
            self.memory.delete_tag(f"t{self._random.randint(0, 3)}")
        else:
            self.memory.make_main()

    def reset(self) -> None:
        self.memory.reset(self._id())

    def copy(self) -> None:
        self.memory.checkout(MAIN)
        self.memory.cherry_pick([self._id()])

    def stash(self) -> None:
        self.memory.stash_pop() if self.memory.stashes() else self.memory.stash()

    def forget(self) -> None:
        if self._random.random() < 0.1:
            self.memory.forget(session=True)
        else:
            self.memory.forget(ids=[self._id()])

    def summarize(self) -> None:
        session = self.store.session(self.memory.user_id, self.memory.session_id)
        newest = self.store.get(session or 0, [self._id()])
        for one in newest:
            text = f"summary {self._random.random()}"
            self.store.keep(session or 0, Summary(text, one.position, one.position, str(one.message.id), 1, NOON))
