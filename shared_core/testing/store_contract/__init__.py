"""Contract tests for stores: subclass `StoreContract`, give it a `store` fixture, and pytest does the rest."""

from shared_core.testing.store_contract.branching import BranchingContract
from shared_core.testing.store_contract.derived import DerivedContract
from shared_core.testing.store_contract.forgetting import ForgettingContract
from shared_core.testing.store_contract.messages import MessagesContract
from shared_core.testing.store_contract.restoring import RestoringContract
from shared_core.testing.store_contract.sharing import SharingContract
from shared_core.testing.store_contract.summaries import SummariesContract
from shared_core.testing.store_contract.tree import TreeContract

__all__ = ["StoreContract"]


class StoreContract(
    MessagesContract,
    TreeContract,
    BranchingContract,
    DerivedContract,
    SummariesContract,
    ForgettingContract,
    RestoringContract,
    SharingContract,
):
    """What every `Store` must do, compared with an exact oracle.

    Subclasses define a fixture `store` that returns an empty store and closes it afterwards; and, if the store outlives
    its object, a fixture `reopen`: a callable that returns another object on the same database.
    """
