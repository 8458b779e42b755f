from __future__ import annotations

import pytest
from tests.golden.wire.load import ids

from rocketline.errors import InvalidMessage
from rocketline.protocol.bodies import SubscriptionData
from rocketline.protocol.hashing import java_string_hash
from rocketline.protocol.subscription import build_subscription, parse_tags, tag_test, text_test

A, B = java_string_hash("TagA"), java_string_hash("TagB")


@pytest.mark.parametrize("vector", ids()["subscription_build"], ids=lambda vector: repr(vector["expression"]))
def test_built_as_java_does(vector: dict[str, object]) -> None:
    expression, built = str(vector["expression"]), vector["built"]
    if not isinstance(built, dict):
        with pytest.raises(InvalidMessage, match="names no tag"):
            build_subscription("T", expression)
        return
    subscription = build_subscription("T", expression, version_ms=5)
    assert (subscription.topic, subscription.sub_version, subscription.class_filter_mode) == ("T", 5, False)
    assert (subscription.sub_string, subscription.expression_type) == (built["subString"], built["expressionType"])
    assert sorted(subscription.tags_set) == sorted(built["tagsSet"])
    assert sorted(subscription.code_set) == sorted(built["codeSet"])


def test_absent_expression_and_type_mean_everything() -> None:
    assert build_subscription("T", None, None) == build_subscription("T", "*", "TAG") == build_subscription("T", "", "")


def test_other_types_keep_their_expression() -> None:
    subscription = build_subscription("T", "a > 1 OR b = '||'", "SQL92", 9)
    assert (subscription.sub_string, subscription.expression_type) == ("a > 1 OR b = '||'", "SQL92")
    assert subscription.tags_set == subscription.code_set == []
    assert tag_test(subscription) is None
    assert text_test(subscription) is None


def test_tags_are_trimmed_as_java_trims() -> None:
    assert parse_tags("\x01a \t||\u3000b") == ["a", "\u3000b"]


def test_expression_of_blanks_matches_everything_as_in_java() -> None:
    subscription = build_subscription("T", " || ")
    assert tag_test(subscription) is None
    assert text_test(subscription) is None


def test_broker_side_test() -> None:
    matches = tag_test(build_subscription("T", "TagA || TagB"))
    assert matches is not None
    assert matches(A)
    assert matches(B)
    assert not matches(0)
    assert not matches(java_string_hash("TagC"))


def test_broker_side_test_looks_at_32_bits() -> None:
    matches = tag_test(SubscriptionData("T", "x", ["x"], [-5, 7]))
    assert matches is not None
    assert matches(-5)
    assert matches((1 << 32) - 5)
    assert matches((1 << 40) + 7)
    assert matches(7 - (1 << 32))
    assert not matches(5 + (1 << 33))


def test_everything_matches_without_a_test() -> None:
    assert tag_test(build_subscription("T")) is None
    assert text_test(build_subscription("T")) is None
    assert tag_test(SubscriptionData("T", "*", ["a"], [97])) is None


def test_consumer_side_test_tells_colliding_tags_apart() -> None:
    subscription = build_subscription("T", "Aa")
    code_matches, text_matches = tag_test(subscription), text_test(subscription)
    assert code_matches is not None
    assert text_matches is not None
    assert code_matches(java_string_hash("BB"))
    assert text_matches("Aa")
    assert not text_matches("BB")
    assert not text_matches(None)


def test_consumer_side_test_is_off_for_class_filters() -> None:
    subscription = build_subscription("T", "a")
    subscription.class_filter_mode = True
    assert text_test(subscription) is None
