"""Secrets out of texts."""

import pytest

from postroad import redact as module
from postroad.redact import one_line, redact, redact_values, remember


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_known", set())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://shop:s3cret@db:5432/shop", "postgresql://shop:***@db:5432/shop"),
        ("amqp://guest:p@ss:w/ord@mq/ is down", "amqp://guest:***@mq/ is down"),
        ("mysql+asyncmy://:s3cret@db/shop", "mysql+asyncmy://:***@db/shop"),
        ("host=db password=s3cret user=shop", "host=db password=*** user=shop"),
        ("password='two words' user=shop", "password='***' user=shop"),
        ('{"password": "s3cret", "user": "shop"}', '{"password": "***", "user": "shop"}'),
        ("PGPASSWORD=s3cret psql", "PGPASSWORD=*** psql"),
        ("?sslpassword=s3cret&ssl=on", "?sslpassword=***&ssl=on"),
        ("api_key: s3cret", "api_key: ***"),
        ("Authorization: Bearer abc.def.ghi", "Authorization: Bearer ***"),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://shop@db:5432/shop",
        "sqlite:///shop.db",
        "order/7 was sent at 12:30 to shop.order.events",
        "the secretary has no tokens",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert redact(text) == text


def test_a_known_password_is_hidden_wherever_it_appears() -> None:
    remember("postgresql://shop:s3%40cret@db/shop")
    assert redact('FATAL: "s3@cret" is wrong, so is s3%40cret') == 'FATAL: "***" is wrong, so is ***'


def test_a_known_password_does_not_eat_other_words() -> None:
    remember("postgresql://postgres:postgres@db/shop")
    assert redact("postgresql is not postgres") == "postgresql is not ***"


def test_a_very_short_password_is_hidden_in_urls_only() -> None:
    remember("postgresql://shop:a@db/shop")
    assert redact("a postgresql://shop:a@db/shop") == "a postgresql://shop:***@db/shop"


def test_no_text_can_forge_a_line_or_steer_a_terminal() -> None:
    assert one_line("one\r\ntwo\tthree\x1b[2J\u2028four\0") == "one\\r\\ntwo\\tthree\\x1b[2J\\x2028four\\x00"


def test_values_keep_their_structure() -> None:
    data = {"url": "amqp://u:s3cret@mq/", "list": ["password=s3cret", 7, None]}
    assert redact_values(data) == {"url": "amqp://u:***@mq/", "list": ["password=***", 7, None]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r'{"password":"a\"s3cret","x":1}', '{"password":"***","x":1}'),
        (r"password='it\'s3cret' x", "password='***' x"),
        (r'b"{\"token\":\"s3cret\"}"', r'b"{\"token\":\"***\"}"'),
        ("password=a,s3cret user=shop", "password=*** user=shop"),
        ("secret_key=s3cret", "secret_key=***"),
        ("1postgres://u:s3cret@db", "1postgres://u:***@db"),
    ],
)
def test_secrets_are_hidden_to_their_end(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_a_value_is_hidden_by_its_name() -> None:
    data = {"password": "s3cret", "accessToken": 12345, "header.x-api-key": "s3cret", "pwd": ["s3cret"], "token": None}
    hidden = {"password": "***", "accessToken": "***", "header.x-api-key": "***", "pwd": "***", "token": None}
    assert redact_values([data]) == [hidden]
    assert redact_values({"tokens": "3", "key": "a"}) == {"tokens": "3", "key": "a"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret!@db/x?options=a@b",
        "postgresql://u:s3cret%21@db/x",
        "postgresql://db/x?user=u&password=s3cret!",
        "postgresql://u:s3cret!@db/x",
    ],
)
def test_a_password_is_known_in_every_form(url: str) -> None:
    remember(url)
    assert "s3cret" not in redact("'s3cret!' or s3cret%21 is wrong")


@pytest.mark.parametrize("part", ["_", "a.", "://:", "password ", "a@://:", "token=,", "x://u:p"])
def test_no_text_takes_long(part: str) -> None:
    """The time grows with the length; had it grown with its square, this would take hours."""
    assert redact(part * 200_000)


def test_a_password_that_is_no_text_is_remembered_too() -> None:
    remember("embedded://u:s3cret\udcff@host")
    assert "s3cret" not in redact("s3cret\udcff is wrong")
