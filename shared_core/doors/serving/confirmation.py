"""The confirmation that a dry run of `forget` gives: it fits what would be erased then, and nothing else."""

import hmac
import json
import secrets
from collections.abc import Sequence

__all__ = ["Confirmations"]


class Confirmations:
    """Signs what a dry run showed. A new object knows no confirmation of an older one.

    Nothing is kept: a confirmation fits as long as the same call would erase the same messages. So it needs no time
    limit, and after the messages are erased it fits nothing.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def of(self, user: str | None, session: str, what: str, ids: Sequence[str]) -> str:
        """Return the confirmation for erasing messages.

        Args:
            user: whose they are.
            session: the conversation.
            what: how they were chosen, because erasing a whole session also erases its branches.
            ids: the messages.
        """
        shown = json.dumps([user, session, what, *ids]).encode()
        return hmac.digest(self._secret, shown, "sha256").hex()[:32]

    def fits(self, given: str, user: str | None, session: str, what: str, ids: Sequence[str]) -> bool:
        """Return whether a confirmation is the one for erasing these messages, in constant time."""
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self.of(user, session, what, ids).encode())
