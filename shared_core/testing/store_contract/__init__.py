"""Contract tests for stores: subclass `StoreContract`, give it a `store` fixture, and pytest does the rest."""

from shared_core.testing.store_contract.change_contract import ChangeContract
from shared_core.testing.store_contract.derived_contract import DerivedContract
from shared_core.testing.store_contract.message_contract import MessageContract
from shared_core.testing.store_contract.race_contract import RaceContract
from shared_core.testing.store_contract.restore_contract import RestoreContract
from shared_core.testing.store_contract.session_contract import SessionContract
from shared_core.testing.store_contract.tree_contract import TreeContract

__all__ = ["StoreContract"]


class StoreContract(
    MessageContract, TreeContract, DerivedContract, SessionContract, RestoreContract, ChangeContract, RaceContract
):  # fmt: skip
    """What every `Store` must do, compared with an exact oracle.

    Subclasses define a fixture `store` that returns an empty store and closes it afterwards. If the store outlives its
    object, they also define a fixture `reopen`: a callable that returns another object on the same database.
    """
