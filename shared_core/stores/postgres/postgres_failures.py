"""What goes wrong with a server, in words: what passes by itself, what does not, and what to do."""

import psycopg
from psycopg import errors

from shared_core.errors import StoreError, StoreUnavailableError

_PASSING: tuple[type[psycopg.Error], ...] = (
    errors.AdminShutdown,
    errors.CannotConnectNow,
    errors.CrashShutdown,
    errors.DeadlockDetected,
    errors.FeatureNotSupported,  # a standby that is asked for a transaction that writes
    errors.LockNotAvailable,
    errors.ProtocolViolation,  # PgBouncer, which has no connection to the server
    errors.ReadOnlySqlTransaction,  # the same, or a server that takes no changes just now
    errors.SerializationFailure,
    errors.UniqueViolation,  # another writer took a name that was free when this one looked
)
_UNAVAILABLE = (*_PASSING, errors.QueryCanceled, errors.TooManyConnections)

_ADVICE: dict[type[psycopg.Error], str] = {
    errors.QueryCanceled: "it took longer than statement_timeout; try again, or open the store with a larger one",
    errors.TooManyConnections: "the server has no more connections; try again, or lower pool_size",
    errors.DiskFull: "make room on the server's disk",
    errors.OutOfMemory: "give the server more memory",
    errors.InsufficientPrivilege: "grant this right to the role, or connect as the owner of the schema",
    errors.ProgramLimitExceeded: "it is larger than PostgreSQL can store or index; ids and names have 2,600 bytes",
    errors.UndefinedTable: "the schema was changed; upgrade infinite-memory, or restore it",
    errors.UndefinedColumn: "the schema was changed by another version; upgrade infinite-memory",
}

_UNREACHED = ("resolve host", "connection failed", "connection is bad")
"""What libpq says where no server answers: it may be down, or the address may be wrong."""

# A refused connection has no code. "The database system is" begins all that PostgreSQL says while it starts or stops.
_REFUSALS_THAT_PASS = ("the database system is ", "shutting down", "too many", "connection slots")

# Without an answer there is no code, either. These are the words of libpq, psycopg and the operating system.
_FAILURES_THAT_PASS = (
    "Connection refused", "failed: No such file or directory", "server: No such file or directory",
    "No route to host", "is unreachable", "Resource temporarily unavailable",
    "timed out", "timeout expired", "resolve host", "translate host name",
    "closed the connection unexpectedly", "closed unexpectedly", "EOF detected", "reset by peer",
    "session is read-only", "hot standby mode",  # not what `target_session_attrs` asks for, until it is promoted
)  # fmt: skip
_ATTEMPT = "\n- host: "
"""What psycopg begins each line with in its list of attempts, if there were several."""


def unknown_outcome(error: psycopg.Error) -> StoreUnavailableError:
    """Return the error for a change whose answer got lost, when the server does not come back to tell."""
    return StoreUnavailableError(
        f"the connection broke while a change was made ({error}), and the server cannot be asked whether it happened; "
        "look first, or send messages again with the same ids"
    )


def is_passing(error: BaseException | None) -> bool:
    """Return whether a call that failed with this error may succeed when it is repeated at once."""
    if isinstance(error, _PASSING):
        return True
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None and not _is_refused(error)


def is_broken(error: BaseException) -> bool:
    """Return whether an error means that other connections to the server are most likely broken, too."""
    lost = (errors.AdminShutdown, errors.CannotConnectNow, errors.CrashShutdown, errors.ProtocolViolation)
    read_only = (errors.FeatureNotSupported, errors.ReadOnlySqlTransaction)
    if isinstance(error, (*lost, *read_only)):
        return True
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def is_mistaken(error: BaseException) -> bool:
    """Return whether no connection came about, and none will at this address, as far as its words tell.

    It is for the first connection: of a server that has been there, what cannot be told is taken for passing. What a
    server says in another language than English cannot be told, and is more often a wrong password than a start.
    """
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return False
    said = str(error)
    passing = (*_REFUSALS_THAT_PASS, *_FAILURES_THAT_PASS)
    attempts = said.split(_ATTEMPT)[1:] or [said]
    unreached = any(words in said for words in _UNREACHED)
    return unreached and not all(any(words in attempt for words in passing) for attempt in attempts)


def _is_refused(error: psycopg.OperationalError) -> bool:
    """Return whether the server answered and does not want this connection, now or later."""
    said = str(error)
    return "FATAL" in said and not any(words in said for words in _REFUSALS_THAT_PASS)


def _is_unreached(error: Exception) -> bool:
    """Return whether no server has answered at all."""
    is_ours = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    return is_ours and any(words in str(error) for words in _UNREACHED) and "FATAL" not in str(error)


def store_error(error: psycopg.Error | OverflowError, label: str, *, mistaken: bool = False) -> StoreError:
    """Return what to raise for an error of the driver.

    Args:
        error: what went wrong.
        label: names the database, without a password.
        mistaken: whether to repeat it is no use, see `is_mistaken`.
    """
    said = " ".join(str(error).split())
    if isinstance(error, errors.InsufficientPrivilege) and "row-level security" in said:
        return StoreError(f"{label} cannot be written: {said}; this is another user's: see Store.for_user")
    advice = next((words for kind, words in _ADVICE.items() if isinstance(error, kind)), None)
    if not mistaken and (isinstance(error, _UNAVAILABLE) or is_passing(error)):
        advice = advice or ("check the address, or try again" if _is_unreached(error) else "try again")
        return StoreUnavailableError(f"{label} cannot be used just now: {said}; {advice}")
    return StoreError(f"{label} cannot be read or written: {said}; {advice or 'check the address and the server'}")
