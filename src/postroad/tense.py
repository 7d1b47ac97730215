"""English verbs, as far as names of commands and events need them."""

import re
from typing import Final

# base:past participle, where the past is not made by adding -ed.
_IRREGULAR_VERBS: Final = """
    become:become begin:begun bid:bid bind:bound break:broken bring:brought build:built buy:bought
    cast:cast catch:caught choose:chosen come:come cost:cost cut:cut deal:dealt do:done draw:drawn
    drive:driven fall:fallen feed:fed find:found fit:fit forget:forgotten freeze:frozen get:got
    give:given go:gone grow:grown hear:heard hide:hidden hit:hit hold:held keep:kept know:known lay:laid
    lead:led leave:left lend:lent let:let lose:lost make:made mean:meant meet:met offset:offset
    overwrite:overwritten pay:paid put:put read:read rebuild:rebuilt redo:redone repay:repaid
    resend:resent reset:reset rewrite:rewritten rise:risen run:run say:said see:seen sell:sold send:sent
    set:set shake:shaken show:shown shut:shut speak:spoken spend:spent split:split spread:spread
    stand:stood steal:stolen stick:stuck take:taken teach:taught tell:told think:thought throw:thrown
    undo:undone understand:understood unbind:unbound upset:upset win:won withdraw:withdrawn
    withhold:withheld write:written
"""
_SIMPLE_PASTS: Final = """
    began chose drew drove fell froze gave gotten grew hid knew rose ran saw shook spoke stole took threw went
    withdrew wrote
"""
# Imperatives that merely look like a past tense.
_ED_VERBS: Final = "bleed breed embed exceed feed heed need proceed seed shed shred speed succeed weed wed"
# Verbs of several syllables that double their last letter; those of one syllable are told by their shape.
_DOUBLING_VERBS: Final = """
    admit allot cancel commit compel confer control defer embed emit equip expel format incur infer label omit
    occur patrol permit prefer propel recur refer regret remit submit transfer transmit unplug unwrap
"""
_PARTICLE_WORDS: Final = "back down in off on out over through up"

_IRREGULAR: Final = dict(pair.split(":") for pair in _IRREGULAR_VERBS.split())
_PAST: Final = frozenset(_IRREGULAR.values()) | frozenset(_SIMPLE_PASTS.split())
_NOT_PAST: Final = frozenset(_ED_VERBS.split())
_DOUBLING: Final = frozenset(_DOUBLING_VERBS.split())
_PARTICLES: Final = frozenset(_PARTICLE_WORDS.split())
_ONE_SYLLABLE: Final = re.compile(r"[^aeiou]*[aeiou][^aeiouwxy]")


_WORDS: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def is_past(words: str) -> bool:
    """`Started`, `created`, `StatusChanged`, `TimedOut`."""
    verb = _split(words)[1].lower()
    return verb in _PAST or (verb.endswith("ed") and verb not in _NOT_PAST)


def is_imperative(words: str) -> bool:
    """`Start`, `Put`, `MarkPaid`: the first word is a verb's base form, which for some is also its past."""
    verb = _WORDS.findall(words)[0].lower()
    return verb in _IRREGULAR or not is_past(verb)


def past_of(words: str) -> str:
    """`Start` → `Started`, `SignUp` → `SignedUp`; what is past already stays."""
    head, verb, particle = _split(words)
    if is_past(verb):
        return words
    past = _conjugated(verb.lower())
    return head + (past.capitalize() if verb[0].isupper() else past) + particle


def same_word(one: str, other: str) -> bool:
    """Canceled and Cancelled are two spellings of one word."""
    return re.sub(r"(.)\1ed", r"\1ed", one) == re.sub(r"(.)\1ed", r"\1ed", other)


def _split(words: str) -> tuple[str, str, str]:
    """What stands before the verb, the verb, and a particle behind it. The verb is the last full word."""
    found = _WORDS.findall(words) or [words]
    particle = found.pop() if len(found) > 1 and found[-1].lower() in _PARTICLES else ""
    verb = found[-1]
    return words[: len(words) - len(verb) - len(particle)], verb, particle


def _conjugated(verb: str) -> str:
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb.endswith("e"):
        return verb + "d"
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ied"
    if verb in _DOUBLING or _ONE_SYLLABLE.fullmatch(verb):
        return verb + verb[-1] + "ed"
    return verb + "ed"
