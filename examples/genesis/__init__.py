"""Stories, written together: an author starts a session, three capabilities propose, the author chooses.

story.py       the words of it: stages, drafts, every command and event by name
session.py     what a session may become: a pure class, decide and evolve
refusals.py    what it says no to
workers.py     Outliner, Worldbuilder and Character, each a process of its own
imagination.py what they come up with
guide.py       the next step follows from the last: event → command
shelf.py       all sessions at a glance, a read model
studio.py      the wiring
api.py         the HTTP side; page.html is its face, picture.py what it shows
"""
