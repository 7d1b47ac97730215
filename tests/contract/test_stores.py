"""Every store passes the contract, and all of them speak through the same statements."""

from postroad.testing.store_contract import StoreContract


class TestStores(StoreContract):
    pass
