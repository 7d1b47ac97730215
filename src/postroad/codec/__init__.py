"""Between an event and its bytes: encoding, schema versions, limits."""

from postroad.codec.json import decode, encode
from postroad.codec.limits import check_size
from postroad.codec.upcast import Upcasters, choose

__all__ = ["Upcasters", "check_size", "choose", "decode", "encode"]
