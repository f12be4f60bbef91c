"""Bearer tokens of a server: which user sends a request, and whether an address may be served without any token."""

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path

from shared_core.errors import InputFileError

__all__ = ["ANY_USER", "BearerTokens", "is_loopback", "require_named_users", "require_tokens"]

ANY_USER = "*"
"""The user of a token whose program names the user of each request itself."""

SHORTEST = 16
"""The fewest characters of a token. Whoever reaches a server can try tokens, and shorter ones can be guessed."""

SCHEME = "bearer"

ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<name>[^:]*))(?::\d*)?")
"""A host and perhaps its port, as in a URL. An IPv6 address without brackets is none."""


class BearerTokens:
    """The users of a server by their tokens. It keeps hashes of tokens only.

    Args:
        users: token -> the user it belongs to, or `*`. A user may have several tokens.

    Raises:
        ValueError: there is no token, or one is too short or has other characters than printable ASCII without
            spaces, or a user has no name.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        for token, user in users.items():
            _check(token, user)
        if not users:
            raise ValueError("there are no tokens: write a line USER TOKEN for each user")
        self._users = {_hash(token): user for token, user in users.items()}

    @classmethod
    def read(cls, path: str | Path) -> "BearerTokens":
        """Read a file with a line `USER TOKEN` for each token. Empty lines and those that begin with # do not count.

        The last word of a line is the token, so the name of a user may hold spaces.

        Raises:
            InputFileError: the file cannot be read, a line is invalid, a token occurs twice, or there is none. The
                message names the line, and neither token nor user: who swaps the two must not find a token in a log.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputFileError(f"cannot read the tokens in {str(path)!r}: {error}") from error
        users: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            words = line.rsplit(maxsplit=1)
            if not words or line.lstrip().startswith("#"):
                continue
            user, token = "".join(words[:-1]).strip(), words[-1]
            try:
                _check(token, user)
                if token in users:
                    raise ValueError("an earlier line has this token, too; give each user their own")
            except ValueError as error:
                raise InputFileError(f"{str(path)!r}, line {number}: {error}") from None
            users[token] = user
        if not users:
            raise InputFileError(f"there are no tokens in {str(path)!r}: write a line USER TOKEN for each user")
        return cls(users)

    @property
    def any_user(self) -> bool:
        """Whether a token belongs to `*`."""
        return ANY_USER in self._users.values()

    def user_of(self, token: str) -> str | None:
        """Return the user a token belongs to, or `*`; None for an unknown one.

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
    """Return whether only this machine reaches an address, with or without a port.

    A name other than `localhost` may be any machine's.
    """
    given = host.strip().lower()
    found = ADDRESS.fullmatch(given)
    name = (found["v6"] or found["name"] or "") if found is not None else given
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def require_tokens(host: str, tokens: BearerTokens | None) -> None:
    """Raise a ValueError if an address that other machines may reach is to be served without tokens."""
    if tokens is None and not is_loopback(host):
        raise ValueError(
            f"other machines reach {host!r}: pass --tokens FILE, in which each line is USER TOKEN, "
            "or serve 127.0.0.1, which only this machine reaches"
        )


def require_named_users(tokens: BearerTokens | None) -> None:
    """Raise a ValueError if a token belongs to `*`, for a server whose requests cannot name a user."""
    if tokens is not None and tokens.any_user:
        raise ValueError("the user * names the user of each request, which cannot be done here: give each user a token")


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _check(token: str, user: str) -> None:
    if len(token) < SHORTEST or not (token.isascii() and token.isprintable()) or " " in token:
        advice = "python -c 'import secrets; print(secrets.token_urlsafe())' prints a good one"
        raise ValueError(f"a token has {SHORTEST} or more ASCII characters and no space; {advice}")
    if not user.strip():
        raise ValueError("a token needs its user in front of it: USER TOKEN")
