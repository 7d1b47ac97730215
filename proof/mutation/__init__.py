"""Small mistakes, planted one at a time into relay, inbox, outbox and stores: does a test notice each of them?

operators.py, sql.py   the mistakes, in Python and in SQL
mutants.py             all of them, each with a name that survives a change elsewhere in the file
select.py              which tests could notice: those that ran the line, or the statement
plant.py               the mistake, put into a process that has the code loaded, or is about to load it
campaign.py            the mistakes in turn
run.py                 a warm process that forks a child for each mistake
explained.py           survivors that change nothing that matters, each with its reason
report.py              the table and the score
"""
