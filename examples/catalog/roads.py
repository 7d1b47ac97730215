"""`postroad relay examples.catalog.roads:writes`, `postroad worker examples.catalog.roads:reads`: the stages apart.

Each has the DATABASE_URL of its own service.
"""

from examples.catalog.events import CANARY
from examples.catalog.reader import Reader
from examples.catalog.writer import Writer

writes = Writer(canary=CANARY).road
reads = Reader().road
