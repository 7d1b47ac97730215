"""`python -m postroad` is the command `postroad`."""

from postroad.cli import main

main(prog_name="postroad")
