"""What the tests stand on: real components, fresh databases, the record of proved requirements."""
