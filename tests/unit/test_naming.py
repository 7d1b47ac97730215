"""Names: what is accepted, what is refused, and that the refusal says the rule and the cure."""

from collections.abc import Callable
from typing import Any

import pytest

from postroad.errors import InvalidName
from postroad.naming import (
    check_aggregate,
    check_command,
    check_dead_letter_topic,
    check_domain_event,
    check_event_type,
    check_group,
    check_identifier,
    check_subscription,
    check_topic,
    event_of,
    map_faults,
)

PAST_ACTIONS = """
    Started Sent Paid Sold Begun Written Made Lost Won Left Put Set Built Chosen Drawn Driven Frozen Given
    Gone Held Hidden Kept Known Laid Led Met Read Run Said Seen Shown Shut Split Spent Stolen Taken Told
    Thrown Understood Withdrawn Reset TimedOut StatusChanged RolledBack Overrode Forbade Flew Withstood Proven Burnt
"""


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    "name",
    [
        "catalog.video.events",
        "catalog.video.commands",
        "catalog.video.queries",
        "media.transcode.events",
        "feed.recommendation.events",
        "shop.order-line.events",
        "shop2.order.events",
        "catalog.events",
    ],
)
def test_topics_that_keep_the_rules(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    ("name", "rule", "cure"),
    [
        ("catalog_video.events", "underscores", "catalog.video.events"),
        ("my_shop.order_line.events", "underscores", "my-shop.order-line.events"),
        ("Catalog.Video.Events", "lower-case", "catalog.video.events"),
        ("catalogVideo.events", "lower-case", "catalog.video.events"),
        ("catalog.video.extra.events", "4 segments, at most 3", None),
        ("prod.catalog.video.events", "environment (prod)", "catalog.video.events"),
        ("staging.video.events", "environment (staging)", "video.events"),
        ("catalog.uat.events", "environment (uat)", "catalog.events"),
        ("catalog.video", "must end with .events", "catalog.video.events"),
        ("catalog.video.event", "must end with .events", "catalog.video.events"),
        ("catalog.video.query", "must end with .events", "catalog.video.queries"),
        ("catalog.video.command", "must end with .events", "catalog.video.commands"),
        ("events", "<domain>.<aggregate>.<category>", None),
        ("catalog.commands", "<context>.events", None),
        ("", "empty", None),
        ("catalog..events", "single hyphens inside", None),
        ("catalog.-video.events", "single hyphens inside", None),
        ("catalog.vidéo.events", "letters a-z", None),
        ("catalog.video.events\n", "letters a-z", None),
        ("goog.video.events", "goog", None),
        ("1shop.video.events", "begin with a letter", None),
        ("a" * 180 + ".events", "longer than 180", None),
    ],
)
def test_topics_that_break_a_rule(name: str, rule: str, cure: str | None) -> None:
    with pytest.raises(InvalidName) as refusal:
        check_topic(name)
    assert rule in refusal.value.rule
    assert refusal.value.name == name
    suggested = refusal.value.rule.partition(" Use ")[2]
    assert suggested == (f"{cure!r}." if cure else "")


@pytest.mark.spec("P1")
def test_an_environment_inside_a_word_is_no_environment() -> None:
    assert check_topic("production-line.item.events") == "production-line.item.events"
    assert check_topic("contest.entry.events") == "contest.entry.events"


def test_dead_letter_topics_are_the_topic_with_its_suffix() -> None:
    assert check_dead_letter_topic("catalog.video.events.dlq") == "catalog.video.events.dlq"
    with pytest.raises(InvalidName, match=r"must end with \.dlq"):
        check_dead_letter_topic("catalog.video.events")
    with pytest.raises(InvalidName, match="underscores"):
        check_dead_letter_topic("catalog_video.events.dlq")
    with pytest.raises(InvalidName, match="4 segments"):
        check_topic("catalog.video.events.dlq")


@pytest.mark.spec("P2")
@pytest.mark.parametrize(
    "name",
    [
        "catalog.video.events.catalog-reader",
        "catalog.video.events.search-indexer",
        "catalog.video.events.dlq-monitor",
        "catalog.events.catalog",
        "catalog.video.events.analytics",
    ],
)
def test_subscriptions_that_keep_the_rules(name: str) -> None:
    assert check_subscription(name) == name


@pytest.mark.spec("P2")
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("catalog.video.events", "its topic 'catalog.video'"),
        ("search-indexer", "its topic ''"),
        ("catalog.video.events.Search-Indexer", "Use 'search-indexer'"),
        ("catalog.video.events.search_indexer", "Use 'search-indexer'"),
        ("catalog.video.events.", "its service '' must not be empty"),
        ("catalog_video.events.search", "underscores"),
    ],
)
def test_subscriptions_that_break_a_rule(name: str, rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        check_subscription(name)
    assert rule in refusal.value.rule
    assert "<topic>.<service>-<role>" in refusal.value.rule


@pytest.mark.parametrize("name", ["receipts", "search-indexer", "a", "r2", "x" * 64])
def test_groups_for_a_broker(name: str) -> None:
    assert check_group(name) == name


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("ORDER", "Use 'order'"),
        ("orderStatus", "Use 'order-status'"),
        ("a.b", "Use 'a-b'"),
        ("x" * 65, "longer than 64"),
        ("", "empty"),
        ("-", "lower-case letters"),
        ("a\n", "lower-case letters"),
    ],
)
def test_groups_a_broker_cannot_have(name: str, rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        check_group(name)
    assert rule in refusal.value.rule


def test_groups_inside_one_process_may_be_capitals() -> None:
    assert check_group("ORDER", on_broker=False) == "ORDER"
    assert check_group("order_status.sync", on_broker=False) == "order_status.sync"
    for name in ("", "a b", "x" * 65, "a\n"):
        with pytest.raises(InvalidName):
            check_group(name, on_broker=False)


@pytest.mark.spec("P4", "G1")
@pytest.mark.parametrize(
    "name",
    [
        "video.created",
        "order.placed",
        "order.status_changed",
        "shop.order.placed",
        "order.place",
        "ORDER_CREATED",
        "ORDER_TIMEOUT",
        "VideoPublished",
        "Genesis.Session.Started",
        "Genesis.Session.Theme.Requested",
        "Outliner.Theme.Proposed",
    ],
)
def test_event_types_that_keep_the_rules(name: str) -> None:
    assert check_event_type(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "order",
        "order placed",
        "order.",
        ".placed",
        "order.Placed",
        "ORDER-CREATED",
        "order." + "x" * 123,
        "a.b\n",
        "a\0.b",
    ],
)
def test_event_types_that_break_a_rule(name: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        check_event_type(name)
    assert refusal.value.kind == "event type"


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Genesis.Session.Start", "Use 'Genesis.Session.Started'"),
        ("Genesis.Session.Theme.Propose", "Use 'Genesis.Session.Theme.Proposed'"),
        ("Genesis.Session.Feed", "Use 'Genesis.Session.Fed'"),
        ("Genesis.Started", "Domain.Aggregate[.Entity].Action"),
        ("A.B.C.D.Started", "Domain.Aggregate[.Entity].Action"),
        ("GenesisSessionStarted", "Domain.Aggregate[.Entity].Action"),
        ("genesis.session.started", "Domain.Aggregate[.Entity].Action"),
        ("Command.Genesis.Session.Started", "is a command's name"),
    ],
)
def test_domain_events_that_break_a_rule(name: str, rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        check_domain_event(name)
    assert rule in refusal.value.rule


@pytest.mark.spec("G1")
@pytest.mark.parametrize("action", PAST_ACTIONS.split())
def test_past_tense_regular_irregular_and_with_particle(action: str) -> None:
    assert check_domain_event(f"Shop.Order.{action}")


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    "name",
    [
        "Command.Genesis.Session.Start",
        "Command.Genesis.Session.Theme.Request",
        "Command.Shop.Order.Put",
        "Command.Shop.Order.Reset",
        "Command.Shop.Order.Proceed",
        "Command.Shop.Order.MarkPaid",
    ],
)
def test_commands_that_keep_the_rules(name: str) -> None:
    assert check_command(name) == name


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Genesis.Session.Start", "must begin with 'Command.'"),
        ("StartGenesisSession", "must begin with 'Command.'"),
        ("Command.Genesis.Session.Started", "imperative"),
        ("Command.Genesis.Session.Sent", "imperative"),
        ("Command.Start", "Domain.Aggregate[.Entity].Action"),
        ("Command.A.B.C.D.Start", "Domain.Aggregate[.Entity].Action"),
        ("Command.genesis.session.start", "Domain.Aggregate[.Entity].Action"),
        ("Command." + "X" * 120 + ".Session.Start", "longer than 128"),
    ],
)
def test_commands_that_break_a_rule(name: str, rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        check_command(name)
    assert rule in refusal.value.rule


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("action", "past"),
    [
        ("Request", "Requested"),
        ("Start", "Started"),
        ("Finish", "Finished"),
        ("Confirm", "Confirmed"),
        ("Update", "Updated"),
        ("Create", "Created"),
        ("Send", "Sent"),
        ("Pay", "Paid"),
        ("Retry", "Retried"),
        ("Ship", "Shipped"),
        ("Submit", "Submitted"),
        ("Fix", "Fixed"),
        ("Add", "Added"),
        ("Set", "Set"),
        ("Embed", "Embedded"),
        ("SignUp", "SignedUp"),
        ("StatusChange", "StatusChanged"),
        ("MarkPaid", "MarkPaid"),
    ],
)
def test_a_command_names_its_event(action: str, past: str) -> None:
    assert event_of(f"Command.Genesis.Session.{action}") == f"Genesis.Session.{past}"


PAST_OF = """
    Override:Overridden Overwrite:Overwritten Overtake:Overtaken Oversee:Overseen Overlap:Overlapped Overlay:Overlaid
    Rerun:Rerun Reset:Reset Rebuild:Rebuilt Resubmit:Resubmitted Rewind:Rewound Remap:Remapped Redo:Redone
    Reopen:Reopened Undo:Undone Unset:Unset Unplug:Unplugged Unwind:Unwound Understand:Understood
    Undergo:Undergone Undercut:Undercut
    Foresee:Foreseen Forecast:Forecast Forbid:Forbidden Forgive:Forgiven Withdraw:Withdrawn Withstand:Withstood
    Outbid:Outbid Outgrow:Outgrown Mislead:Misled Mislabel:Mislabelled Fly:Flown Strike:Struck Broadcast:Broadcast
    Ride:Ridden Swear:Sworn Wear:Worn Tear:Torn Seek:Sought Fight:Fought Swim:Swum Ring:Rung Shed:Shed Quit:Quit
    Debug:Debugged Program:Programmed Signal:Signalled Fulfil:Fulfilled Quiz:Quizzed Panic:Panicked Sync:Synced
    Setup:SetUp Signup:SignedUp Login:LoggedIn Checkout:CheckedOut Rollback:RolledBack Shutdown:ShutDown Backup:BackedUp
    Takeover:TakenOver Timeout:TimedOut PriceOverride:PriceOverridden
    Relay:Relayed Render:Rendered Reckon:Reckoned Relent:Relented Outfit:Outfitted Return:Returned Reason:Reasoned
    Reveal:Revealed Register:Registered Recover:Recovered Reel:Reeled Wither:Withered Reseed:Reseeded Visit:Visited
"""


@pytest.mark.spec("G1")
@pytest.mark.parametrize("pair", PAST_OF.split())
def test_the_past_of_verbs_with_a_prefix_without_a_rule_and_of_two_words_in_one(pair: str) -> None:
    action, past = pair.split(":")
    assert event_of(f"Command.Shop.Order.{action}") == f"Shop.Order.{past}"
    assert check_domain_event(f"Shop.Order.{past}")
    if past != action:
        with pytest.raises(InvalidName, match=f"Use 'Shop.Order.{past}'"):
            check_domain_event(f"Shop.Order.{action}")


@pytest.mark.spec("G1")
def test_the_command_map_is_checked_as_a_whole() -> None:
    good = {
        "Command.Genesis.Session.Start": "Genesis.Session.Started",
        "Command.Genesis.Session.Theme.Request": "Genesis.Session.Theme.Requested",
        "Command.Shop.Order.Cancel": "Shop.Order.Canceled",
        "Command.Shop.Item.Cancel": "Shop.Item.Cancelled",
    }
    assert map_faults(good) == []
    bad = {
        "Command.Genesis.Session.Start": "Genesis.Session.Finished",
        "Command.Genesis.Session.Finish": "Genesis.World.Finished",
        "StartGenesisSession": "GenesisSessionStarted",
        "Command.Genesis.Session.Confirm": "Genesis.Session.Confirm",
    }
    faults = map_faults(bad)
    assert [fault.name for fault in faults] == [
        "Genesis.Session.Finished",
        "Genesis.World.Finished",
        "StartGenesisSession",
        "Genesis.Session.Confirm",
    ]
    assert "does not follow from 'Command.Genesis.Session.Start'. Use 'Genesis.Session.Started'." in faults[0].rule


def test_aggregates() -> None:
    assert [check_aggregate(name) for name in ("order", "Order", "order-line", "shop.order")]
    # A slash would make two ordering keys alike.
    for name in ("", "order/line", "1order", "order line", "x" * 65, "order\n"):
        with pytest.raises(InvalidName):
            check_aggregate(name)


@pytest.mark.parametrize("name", ["outbox", "_outbox2", "catalog.outbox_events", "x" * 63, "s" * 63 + "." + "t" * 63])
def test_table_names_that_need_no_quoting(name: str) -> None:
    assert check_identifier(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "2outbox",
        "out-box",
        'out"box',
        "a.b.c",
        "a.",
        ".a",
        "x; DROP TABLE y",
        "x" * 64,
        "ünïcode",
        "outbox\n",
        "a\0",
    ],
)
def test_table_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        check_identifier(name)
    assert refusal.value.kind == "table"


@pytest.mark.parametrize(
    "check",
    [
        check_topic,
        check_dead_letter_topic,
        check_subscription,
        check_group,
        check_event_type,
        check_domain_event,
        check_command,
        event_of,
        check_aggregate,
        check_identifier,
    ],
)
@pytest.mark.parametrize(("name", "told"), [(None, "NoneType"), (5, "int"), (b"a.events", "bytes")])
def test_what_is_no_text_is_no_name(check: Callable[[Any], str], name: object, told: str) -> None:
    with pytest.raises(InvalidName, match=rf"name .*: must be text, is {told}\."):
        check(name)
