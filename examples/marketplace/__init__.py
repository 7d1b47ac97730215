"""A second-hand shop: one of each product, orders that must be paid in time, and everything that follows by events.

orders.py      what an order may become, each step a conditional update that must change exactly one row
events.py      the four events and their frozen JSON form
consumers.py   what happens later: inventory, fulfilment, status sync, time-out
sweep.py       the same time-out by looking, for the day the message does not come
api.py         the service's HTTP side; page.html is its face
shop.py        the wiring
"""
