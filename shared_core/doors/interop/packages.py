"""The import of an adapter package: it checks that its framework is installed, and loads names when they are used."""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from shared_core.errors import MissingExtraError


def require_framework(module: str, *, distribution: str, extra: str) -> None:
    """Check that a framework is installed, without importing it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        found = find_spec(module) is not None
    except ModuleNotFoundError:  # of a namespace package, only another part is installed; or a hook hides the module
        found = False
    if not found:
        raise MissingExtraError(
            f"{distribution} is not installed: pip install 'infinite-memory[{extra}]'", name=module.partition(".")[0]
        )


def public_name(
    package: str, modules: Mapping[str, Sequence[str]], name: str, *, extra: str, optional: Collection[str] = ()
) -> Any:
    """Return a public name of a package, loading the module that defines it.

    Args:
        package: the package's name.
        modules: its modules, each with the public names that it defines.
        name: the name wanted.
        extra: the extra that installs everything the package needs.
        optional: packages that only some modules need.

    Raises:
        AttributeError: there is no such name.
        MissingExtraError: an optional package is not installed.
    """
    home = next((module for module, names in modules.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{package}.{home}"), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in optional:
            raise
        raise MissingExtraError(
            f"{name} needs {missing}, which is not installed: pip install 'infinite-memory[{extra}]'", name=missing
        ) from error
