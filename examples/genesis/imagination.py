"""What the capabilities come up with: small lists, shuffled for each session by its id.

The same request gives the same draft, wherever and however often it is answered; the next round gives another one.
"""

import random
from collections.abc import Callable, Mapping
from typing import Final

from examples.genesis.story import Draft, Requested, Stage

Pick = Callable[[str], str]

_WORDS: Final[Mapping[str, str]] = {
    "theme": """
        the price of remembering|what we owe to strangers|the courage to come home|a promise kept too long
        |the comfort of a small lie|learning to be forgotten|the weight of good luck|mending what was never yours
    """,
    "manner": """
        quietly, with a dry smile|as a letter that was never sent
        |in the voice of somebody who has forgiven it all|like a map drawn from memory
        |with the patience of winter|as it was told at kitchen tables
    """,
    "question": """
        who may we become when nobody is watching?|how much of a life can be repaired?|is it kinder to know?
        |what would you leave behind to be allowed in?|when does waiting turn into living?
        |can a debt be paid by somebody else?
    """,
    "name": """
        Orrin Reach|Saltmere|Low Candle|Vesper Quay|Thornhallow|Eleven Bridges|Morrow Gate|The Lantern Isles
    """,
    "place": """
        a city on stilts above a sea that comes only at night|a valley where every house faces away from the road
        |a harbour town whose ships leave and never need to return|a mountain of libraries, one for each family
        |the last railway, and the villages that live on its wagons|an island that is surveyed anew each spring
    """,
    "custom": """
        names are lent and must be given back|bells tell what the clocks may not
        |everyone owes the river one story|the dead are asked for advice, and answer late
        |debts are knitted into scarves|maps are drawn by children only
    """,
    "trouble": """
        This year the tide has brought doors instead of fish|Somebody has begun to answer letters nobody wrote
        |The oldest bell rings by itself, always one hour early
        |A road has appeared, and it is warm in the morning|For the first time, a stranger remembers the place
    """,
    "person": """
        Ilse Varn|Tomas Okonjo|Wren Halloran|Mei Castellan|Jonah Brack|Adaeze Lindqvist|Bruno Sarr|Noor Falk
    """,
    "trade": """
        a lamplighter|a keeper of lost luggage|a cartographer who has never travelled|a retired ferry pilot
        |a forger of birth certificates|the youngest judge of the tide court|a piano tuner for empty houses
    """,
    "want": """
        to find the person who once paid for their schooling|one whole day without being needed
        |to hear their own name said by a friend|to undo a signature|to be the one who is waited for
    """,
    "fear": """
        that they were right to leave|doors that open inwards|being thanked for it
        |the first warm evening of the year|that the letter will come after all
    """,
    "secret": """
        they cannot read|they have already seen how it ends|the key never fitted|it was their idea
        |they have kept every single ticket
    """,
    "arc": """
        The Long Way Back|A Door in the Tide|Seven Borrowed Names|What the Bell Knew|The Surveyor's Apology
        |Every Ticket Kept|Before the Lamps
    """,
    "spark": """
        opens a parcel that was meant for somebody else|is asked to testify for an enemy
        |misses the last boat on purpose|is recognised by a child|finds the same date written on three walls
    """,
    "turn": """
        Halfway through, the helper turns out to be the debtor|At the worst moment, the plan works
        |The one who was searched for has been searching too|Then the river takes back its story
    """,
    "ending": """
        nothing is returned, and it is enough|the door stays open all night
        |two people tell the same story differently|somebody new lights the lamps
        |the map is left blank on purpose
    """,
}


def imagine(request: Requested) -> Draft:
    def pick(kind: str) -> str:
        words = [" ".join(word.split()) for word in _WORDS[kind].split("|")]
        # Text as a seed gives the same order in every process; hash() would not.
        random.Random(f"{request.session_id} {request.stage} {kind}").shuffle(words)
        return words[(request.round - 1) % len(words)]

    draft = _MAKERS[request.stage](request, pick)
    return Draft(draft.title, f"{draft.text} You wished: “{request.wish}”.") if request.wish.strip() else draft


def _theme(request: Requested, pick: Pick) -> Draft:
    theme = pick("theme")
    begun = f" It grows from your idea, “{request.idea.strip()}”." if request.idea.strip() else ""
    text = f"A story about {theme}, told {pick('manner')}.{begun} Behind every page: {pick('question')}"
    return Draft(_capital(theme), text)


def _world(request: Requested, pick: Pick) -> Draft:
    text = f"{_capital(pick('place'))}, where {pick('custom')}. {pick('trouble')}."
    return Draft(pick("name"), text)


def _character(request: Requested, pick: Pick) -> Draft:
    home = request.chosen[Stage.WORLD].title
    person = pick("person")
    text = (
        f"{_capital(pick('trade'))} from {home}, who wants {pick('want')} and fears {pick('fear')}. "
        f"What nobody knows: {pick('secret')}."
    )
    return Draft(person, text)


def _plot(request: Requested, pick: Pick) -> Draft:
    theme, world, hero = (request.chosen[stage].title for stage in (Stage.THEME, Stage.WORLD, Stage.CHARACTER))
    text = (
        f"In {world}, {hero} {pick('spark')}. {pick('turn')}. "
        f"In the end {pick('ending')}: {theme[0].lower()}{theme[1:]}."
    )
    return Draft(pick("arc"), text)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


_MAKERS: Final[Mapping[Stage, Callable[[Requested, Pick], Draft]]] = {
    Stage.THEME: _theme,
    Stage.WORLD: _world,
    Stage.CHARACTER: _character,
    Stage.PLOT: _plot,
}
