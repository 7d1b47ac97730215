"""The databases. A store is one folder: its driver, one .sql file per stage, its migrations."""

from importlib import import_module

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from postroad.clock import Clock, SystemClock
from postroad.errors import ConfigurationError
from postroad.redact import remember
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
    parsed = _parsed(url)
    remember(parsed.render_as_string(hide_password=False))
    family = _FAMILIES.get(parsed.get_backend_name())
    if family is None:
        raise ConfigurationError(
            f"No store for {parsed.get_backend_name()!r} databases. Use postgresql, mysql, mariadb or sqlite."
        )
    _check_place(parsed, family)
    driver = import_module(f"postroad.stores.{family}.driver")
    store: Store = driver.open(parsed, clock or SystemClock())
    return store


def _parsed(url: str | URL) -> URL:
    try:
        str(url).encode()  # bytes that are no UTF-8 arrive from the environment as halves of surrogate pairs
        return make_url(url)
    except (ArgumentError, ValueError):
        # Without the cause, which may quote a part of the password.
        raise ConfigurationError(
            "The database URL cannot be read. It looks like postgresql://user:password@host:5432/name, "
            "or sqlite:///shop.db for a file."
        ) from None


def _check_place(url: URL, family: str) -> None:
    """A password that is not URL-quoted spills into the host or the name; those are shown, so it must not pass."""
    if family == "sqlite":
        if url.host or url.username or url.password or url.port:
            raise ConfigurationError(
                "The database URL names a host, but SQLite is a file. Write sqlite:///shop.db for a relative path, "
                "sqlite:////srv/shop.db for an absolute one."
            )
    elif "@" in f"{url.host}{url.database}" or (url.port is not None and not 0 < url.port < 65_536):
        raise ConfigurationError(
            "The database URL cannot be read. Characters such as @ : / ? # in its user or password must be quoted: "
            "%40 for @, %3A for :, %2F for /. Its port is a number below 65536."
        )
