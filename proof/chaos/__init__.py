"""Chaos on real processes: `python -m proof.chaos [--long] [--store sqlite] [--broker rabbitmq] [--seed 7]`.

A small bank writes payments and their events in one transaction; relays, workers and writers are processes of
their own, which are killed, frozen, cut off, silenced, and deprived of their database, their broker and their disk.
In the end the ledger compares the payments that are really in the database with their effects.
"""
