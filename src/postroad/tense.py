"""English verbs, as far as names of commands and events need them."""

import re
from typing import Final

# base:past participle, where the past is not made by adding -ed. Those with a prefix, such as override and rebuild,
# follow the verb behind it.
_IRREGULAR_VERBS: Final = """
    arise:arisen awake:awoken bear:borne beat:beaten become:become begin:begun bend:bent bet:bet bid:bid bind:bound
    bite:bitten bleed:bled blow:blown break:broken breed:bred bring:brought broadcast:broadcast build:built burst:burst
    buy:bought cast:cast catch:caught choose:chosen cling:clung come:come cost:cost creep:crept cut:cut deal:dealt
    dig:dug do:done draw:drawn drink:drunk drive:driven eat:eaten fall:fallen feed:fed feel:felt fight:fought find:found
    fit:fit flee:fled fling:flung fly:flown forbid:forbidden forget:forgotten forgive:forgiven forgo:forgone
    forsake:forsaken freeze:frozen get:got give:given go:gone grow:grown hang:hung have:had hear:heard hide:hidden
    hit:hit hold:held hurt:hurt inset:inset keep:kept know:known lay:laid lead:led leave:left lend:lent let:let
    light:lit lose:lost make:made mean:meant meet:met offset:offset partake:partaken pay:paid preset:preset put:put
    quit:quit read:read rid:rid ride:ridden ring:rung rise:risen run:run say:said see:seen seek:sought sell:sold
    send:sent set:set shake:shaken shed:shed shine:shone shoot:shot show:shown shrink:shrunk shut:shut sing:sung
    sink:sunk sit:sat slay:slain sleep:slept slide:slid sling:slung slit:slit speak:spoken spend:spent spin:spun
    split:split spread:spread spring:sprung stand:stood steal:stolen stick:stuck sting:stung stink:stunk stride:stridden
    strike:struck string:strung strive:striven sublet:sublet swear:sworn sweep:swept swim:swum swing:swung take:taken
    teach:taught tear:torn tell:told think:thought throw:thrown thrust:thrust tread:trodden typeset:typeset upset:upset
    uphold:upheld wake:woken wear:worn weave:woven weep:wept win:won wind:wound wring:wrung write:written
"""
_PREFIXES: Final = ("over", "under", "fore", "with", "out", "mis", "re", "un")
# Simple pasts and second forms: nobody would call an event so first, but they are past.
_OTHER_PASTS: Final = """
    arose ate awoke began bit blew bore broke burnt came chose did drank drew dreamt drove fell flew forbade forgave
    forsook forwent froze gave gotten grew hewn hid knew learnt mown proven rang rode rose sang sank saw sawn sewn shook
    shrank sown spelt spilt spoilt spoke sprang stole stricken strode strove swam swollen swore sworn threw took tore
    trod went woke wore wove wrote wrung
"""
# Imperatives that merely look like a past tense.
_ED_VERBS: Final = "bleed breed embed exceed feed heed need proceed seed shred speed succeed weed wed"
# Verbs that merely look as if they were irregular, or doubled their last letter.
_REGULAR_VERBS: Final = "outfit reckon redden relay relent render"
# Verbs of several syllables that double their last letter; those of one syllable are told by their shape.
_DOUBLING_VERBS: Final = """
    abhor acquit admit allot annul backlog befit cancel channel commit compel concur confer control counsel debug defer
    demur deter dial dispel embed emit enrol entrap equal equip excel expel extol format fuel fulfil funnel handicap
    incur infer initial instal instil kidnap label leapfrog level marshal model occur omit outfit parcel patrol permit
    prefer program propel rebel recap recur refer regret remit repel sandbag shovel signal stencil submit swivel total
    transfer transmit travel tunnel unravel worship zigzag
"""
# One word, of a verb and its particle.
_COMPOUND_VERBS: Final = """
    backup checkin checkout cleanup clockin clockout handover lockout login logoff logon logout lookup markdown markup
    optin optout pickup rollback rollout setup shutdown signin signoff signout signup startup switchover takedown
    takeoff takeover teardown timeout
"""
_PARTICLE_WORDS: Final = "back down in off on out over through up"

_IRREGULAR: Final = dict(pair.split(":") for pair in _IRREGULAR_VERBS.split())
_PAST: Final = frozenset(_IRREGULAR.values()) | frozenset(_OTHER_PASTS.split())
_NOT_PAST: Final = frozenset(_ED_VERBS.split())
_REGULAR: Final = frozenset(_REGULAR_VERBS.split())
_DOUBLING: Final = frozenset(_DOUBLING_VERBS.split())
_COMPOUND: Final = frozenset(_COMPOUND_VERBS.split())
_PARTICLES: Final = frozenset(_PARTICLE_WORDS.split())
# The u of quiz is no vowel of its own.
_ONE_SYLLABLE: Final = re.compile(r"(?:[^aeiou]*qu|[^aeiou]*)[aeiou][^aeiouwxy]")
_SHORTEST_VERB: Final = 3
"""Of those behind a prefix: reel and wither have none."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def is_past(words: str) -> bool:
    """`Started`, `created`, `StatusChanged`, `TimedOut`, `Overridden`."""
    verb = _split(words)[1].lower()
    if verb in _REGULAR:
        return False
    forms = (verb, _stem(verb))
    return not _PAST.isdisjoint(forms) or (verb.endswith("ed") and _NOT_PAST.isdisjoint(forms))


def is_imperative(words: str) -> bool:
    """`Start`, `Put`, `MarkPaid`: the first word is a verb's base form, which for some is also its past."""
    verb = _WORDS.findall(words)[0].lower()
    return verb in _IRREGULAR or _stem(verb) in _IRREGULAR or not is_past(verb)


def past_of(words: str) -> str:
    """`Start` → `Started`, `SignUp` → `SignedUp`; what is past already stays."""
    head, verb, particle = _split(words)
    if is_past(verb):
        return words
    base, own_particle = _taken_apart(verb.lower())
    past = _conjugated(base)
    if verb[0].isupper():
        past, own_particle = past.capitalize(), own_particle.capitalize()
    return head + past + own_particle + particle


def same_word(one: str, other: str) -> bool:
    """Canceled and Cancelled are two spellings of one word."""
    return re.sub(r"(.)\1ed", r"\1ed", one) == re.sub(r"(.)\1ed", r"\1ed", other)


def _split(words: str) -> tuple[str, str, str]:
    """What stands before the verb, the verb, and a particle behind it. The verb is the last full word."""
    found = _WORDS.findall(words) or [words]
    particle = found.pop() if len(found) > 1 and found[-1].lower() in _PARTICLES else ""
    verb = found[-1]
    return words[: len(words) - len(verb) - len(particle)], verb, particle


def _taken_apart(verb: str) -> tuple[str, str]:
    """`setup` → `set` and `up`."""
    if verb not in _COMPOUND:
        return verb, ""
    particle = next(particle for particle in sorted(_PARTICLES) if verb.endswith(particle))
    return verb.removesuffix(particle), particle


def _stem(verb: str) -> str:
    """`override` → `ride`; a verb without a prefix is its own."""
    if verb in _REGULAR:
        return verb
    stems = (verb.removeprefix(prefix) for prefix in _PREFIXES if verb.startswith(prefix))
    return next((stem for stem in stems if len(stem) >= _SHORTEST_VERB or stem in _IRREGULAR), verb)


def _conjugated(verb: str) -> str:
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    stem = _stem(verb)
    if stem in _IRREGULAR:
        return verb.removesuffix(stem) + _IRREGULAR[stem]
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("ic"):
        return verb + "ked"
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ied"
    if not _DOUBLING.isdisjoint((verb, stem)) or (verb not in _REGULAR and _ONE_SYLLABLE.fullmatch(stem)):
        return verb + verb[-1] + "ed"
    return verb + "ed"
