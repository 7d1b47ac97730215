"""What errors of one cause have in common."""

import re
from typing import Final

from postroad.redact import redact

_VARIABLE: Final = re.compile(
    r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}"  # ids
    r"|\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?"  # times
    r"|'[^']*'|\"[^\"]*\""  # what was quoted
    r"|0x[0-9a-f]+|\d+(?:[.,]\d+)*",
    re.IGNORECASE,
)


def fingerprint(error: str) -> str:
    """Without secrets: people copy it from where it is shown."""
    return _VARIABLE.sub("…", " ".join(redact(error).split()))[:200]
