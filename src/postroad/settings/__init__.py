"""Settings from a YAML file or a mapping, with the environment above them: all checked at the start, by their path."""

from postroad.settings.load import load
from postroad.settings.model import Settings
from postroad.settings.options import arguments

__all__ = ["Settings", "arguments", "load"]
