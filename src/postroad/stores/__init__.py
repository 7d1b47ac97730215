"""The databases. A store is one folder: its driver, one .sql file per stage, its migrations."""

from importlib import import_module

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from postroad.clock import Clock, SystemClock
from postroad.errors import ConfigurationError
from postroad.stores.base import Store

__all__ = ["STORES", "Store", "open_store"]

STORES = ("postgresql", "mysql", "sqlite")
_FAMILIES = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}


def open_store(url: str | URL, *, clock: Clock | None = None) -> Store:
    """The store for a URL; `postgresql://`, `mysql://`, `mariadb://` and `sqlite:///` need no driver name."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigurationError(
            "The database URL cannot be read. It looks like postgresql://user:password@host:5432/name, "
            "or sqlite:///shop.db for a file."
        ) from None
    family = _FAMILIES.get(parsed.get_backend_name())
    if family is None:
        raise ConfigurationError(
            f"No store for {parsed.get_backend_name()!r} databases. Use postgresql, mysql, mariadb or sqlite."
        )
    driver = import_module(f"postroad.stores.{family}.driver")
    store: Store = driver.open(parsed, clock or SystemClock())
    return store
