"""Why we believe that nothing is lost, doubled or reordered: things to run, not to read."""
