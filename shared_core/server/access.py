"""Who may ask: bearer tokens and the users they stand for, and addresses that need no token."""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path

from shared_core.errors import InputFileError
from shared_core.server.refusal import Refused

ANY_USER = "*"
"""In a file of tokens, the user of a program that names the user of each request itself."""

LEAST_TOKEN = 16
"""The fewest characters of a token. Whoever can reach the server can try tokens."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token.

    Attributes:
        digest: SHA-256 of the token: tokens of any length are compared in the same time, and none is kept in memory.
        user: the user it stands for. None: the program that has it names the user of each request.
    """

    digest: bytes
    user: str | None

    def __repr__(self) -> str:
        return f"Token(user={self.user!r})"


def token_for(user: str, secret: str) -> Token:
    """Return a token of a user, `*` for any; ValueError if it is too short or holds anything but printable ASCII."""
    if len(secret) < LEAST_TOKEN or not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise ValueError(f"the token of {user!r} must have {LEAST_TOKEN} ASCII characters or more, and no blanks")
    return Token(sha256(secret.encode()).digest(), None if user == ANY_USER else user)


def read_tokens(path: str | Path) -> tuple[Token, ...]:
    """Return the tokens of a file with a user and a token on each line; lines that begin with # are notes.

    Raises:
        InputFileError: the file cannot be read, a line is something else, or two lines have one token.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"cannot read the tokens in {str(path)!r}: {error}") from error
    tokens: dict[bytes, Token] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InputFileError(f"{str(path)!r}, line {number}: expected a user and a token, with a blank between")
        try:
            token = token_for(*words)
        except ValueError as error:
            raise InputFileError(f"{str(path)!r}, line {number}: {error}") from None
        if token.digest in tokens:
            raise InputFileError(f"{str(path)!r}, line {number}: another line has this token, too")
        tokens[token.digest] = token
    if not tokens:
        raise InputFileError(f"{str(path)!r} has no token: write a user and a token on each line")
    return tuple(tokens.values())


def bearer(authorization: str | None, tokens: Iterable[Token]) -> Token:
    """Return the token that the header of a request holds. All tokens are compared, each in constant time.

    Raises:
        Refused: with 401, if there is no such token.
    """
    scheme, _, secret = (authorization or "").partition(" ")
    given = sha256(secret.strip().encode(errors="surrogateescape")).digest()
    found = [token for token in tokens if hmac.compare_digest(token.digest, given)]
    if scheme.lower() != "bearer" or not found:
        wrong = "the bearer token is unknown" if authorization else "a bearer token is needed: Authorization: Bearer …"
        raise Refused(401, wrong, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
    return found[0]


def is_loopback(host: str) -> bool:
    """Return whether an address, with or without a port, is one that only this machine reaches."""
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
