from __future__ import annotations

import pytest

from rocketline.protocol.names import dlq_topic, group_problem, is_derived, retry_topic, topic_problem


@pytest.mark.parametrize(
    "topic",
    ["T", "a-b_c", "%RETRY%g", "%DLQ%g", "ns%topic", "a|b", "0", "t" * 127, "%RETRY%" + "g" * 248, "%RETRY%g+t"],
)
def test_topics_taken(topic: str) -> None:
    assert topic_problem(topic) is None


@pytest.mark.parametrize(
    "topic",
    [
        "",
        " ",
        "a b",
        "a/b",
        "../../x",
        "a.b",
        "ü",
        "東京",
        "a\n",
        "a\0",
        "٣",
        "t" * 128,
        "%RETRY%" + "g" * 249,
        "a+b",
        "t\ud800",
    ],
)
def test_topics_refused(topic: str) -> None:
    assert topic_problem(topic)


def test_groups() -> None:
    assert group_problem("g" * 120) is None
    assert "121 characters" in str(group_problem("g" * 121))
    assert group_problem("g" * 255, 255) is None
    assert group_problem("")
    assert group_problem("../x")
    assert group_problem("a b")


def test_derived_names() -> None:
    assert retry_topic("G") == "%RETRY%G"
    assert dlq_topic("G") == "%DLQ%G"
    assert is_derived("%DLQ%G")
    assert not is_derived("RETRY%G")
