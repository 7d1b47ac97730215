"""See `postroad.stores`."""
