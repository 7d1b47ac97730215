"""Whether a schema may follow another: what was written under one is read under the other, and the other way round."""

from postroad.codec.compat.break_ import Break
from postroad.codec.compat.schemas import check

__all__ = ["Break", "check"]
