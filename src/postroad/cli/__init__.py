"""The command `postroad`: run a service's events, look at them, mend them.

Exit codes: 0 it worked, 1 it failed (one line on standard error says why), 2 the command was not understood,
130 and 143 a second signal cut the work short.
"""

from postroad.cli.main import main

__all__ = ["main"]
