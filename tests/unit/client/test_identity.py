from __future__ import annotations

import pytest

from rocketline.client.identity import check_group, client_id, local_ip, parse_name_servers, unique_instance
from rocketline.errors import ConfigError, InvalidMessage


def test_a_client_id_is_ip_at_instance() -> None:
    assert client_id("worker", ip="10.0.0.7") == "10.0.0.7@worker"
    assert client_id("worker", ip="10.0.0.7", stream=True) == "10.0.0.7@worker@STREAM"
    assert client_id("worker").partition("@")[0] == local_ip()


def test_a_client_ip_must_be_one() -> None:
    with pytest.raises(ConfigError, match="client_ip 'myhost'"):
        client_id("worker", ip="myhost")


def test_unnamed_instances_are_never_the_same() -> None:
    names = {unique_instance() for _ in range(1000)}
    assert len(names) == 1000
    assert len({client_id() for _ in range(100)}) == 100


@pytest.mark.parametrize("instance", ["", "../x", "a/b", ".hidden", "sp ace", "x" * 129, "a\x00b"])
def test_instance_names_that_could_leave_their_folder_are_refused(instance: str) -> None:
    with pytest.raises(ConfigError, match="instance name"):
        client_id(instance)


def test_name_servers_come_as_text_or_sequence() -> None:
    assert parse_name_servers("a:1;b:2") == ("a:1", "b:2")
    assert parse_name_servers(" a:1 ; ; b:2,c:3") == ("a:1", "b:2", "c:3")
    assert parse_name_servers(["a:1", "a:1", "[::1]:9876"]) == ("a:1", "[::1]:9876")


@pytest.mark.parametrize("text", ["", " ; ", "nohost", "host:", "host:port", "host:99999", ":9876"])
def test_wrong_name_servers_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="name server"):
        parse_name_servers(text)


def test_groups_are_checked() -> None:
    assert check_group("billing") == "billing"
    with pytest.raises(InvalidMessage, match="sp ace"):
        check_group("sp ace")
