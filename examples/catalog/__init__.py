"""Videos: a service that owns them, and a service that finds them, with nothing but events between."""
