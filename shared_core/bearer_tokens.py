"""Bearer tokens of a server: which user sends a request, and whether an address may be served without any token."""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path

__all__ = ["BearerTokens", "is_loopback", "require_tokens"]

SHORTEST = 16
"""The fewest characters of a token. Shorter ones can be guessed."""

SCHEME = "bearer"


class BearerTokens:
    """The users of a server by their tokens. It keeps hashes of tokens only.

    Args:
        users: token -> the user it belongs to. A user may have several tokens.

    Raises:
        ValueError: there is no token, or one is too short or contains a space, or a user has no name.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        for token, user in users.items():
            _check(token, user)
        if not users:
            raise ValueError("there are no tokens: write a line TOKEN USER for each user")
        self._users = {_hash(token): user for token, user in users.items()}

    @classmethod
    def read(cls, path: str | Path) -> "BearerTokens":
        """Read a file with a line `TOKEN USER` for each token. Empty lines and those that begin with # do not count.

        Raises:
            OSError: the file cannot be read.
            ValueError: a line is invalid, or a token occurs twice. The message names the line, and no token.
        """
        users: dict[str, str] = {}
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            token, _, user = line.strip().partition(" ")
            if token in users:
                raise ValueError(f"{path}, line {number}: the token of an earlier line; give each user their own")
            try:
                _check(token, user.strip())
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            users[token] = user.strip()
        try:
            return cls(users)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def user_of(self, token: str) -> str | None:
        """Return the user a token belongs to; None for an unknown one.

        It compares with every token, in constant time, so how long it takes says nothing about the tokens.
        """
        given, found = _hash(token), None
        for known, user in self._users.items():
            if hmac.compare_digest(known, given):
                found = user
        return found

    def user_of_header(self, authorization: str | None) -> str | None:
        """Return the user of an `Authorization` header; None if it is missing, of another scheme, or unknown."""
        scheme, _, token = (authorization or "").partition(" ")
        return self.user_of(token.strip()) if scheme.lower() == SCHEME else None


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address. A name other than `localhost` may be any machine's."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def require_tokens(host: str, tokens: BearerTokens | None) -> None:
    """Raise a ValueError if an address that other machines may reach is to be served without tokens."""
    if tokens is None and not is_loopback(host):
        raise ValueError(
            f"other machines reach {host!r}: pass --tokens FILE, in which each line is TOKEN USER, "
            "or serve 127.0.0.1, which only this machine reaches"
        )


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _check(token: str, user: str) -> None:
    if len(token) < SHORTEST or token.split() != [token]:
        advice = "python -c 'import secrets; print(secrets.token_urlsafe())' prints a good one"
        raise ValueError(f"a token has at least {SHORTEST} characters and no space; {advice}")
    if not user:
        raise ValueError("a token needs the name of its user: TOKEN USER")
