"""Apache's Python client, driven from outside: one JSON object per line in, {"cmd": ..., "args": {...}}, and one per line
out, {"result": ...} or {"error": text}."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections import Counter

import rocketmq
from rocketmq import ConsumeResult, FilterExpression, TransactionResolution

OUTCOMES = {
    "COMMIT": TransactionResolution.COMMIT,
    "ROLLBACK": TransactionResolution.ROLLBACK,
    "UNKNOWN": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}


def shown(message):
    return {
        "id": message.message_id,
        "topic": message.topic,
        "body": message.body.decode(),
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "group": message.message_group,
        "attempt": message.delivery_attempt,
    }


class Listener(rocketmq.MessageListener):
    def __init__(self, fail_first, holds):
        self.seen = []
        self._times = Counter()
        self._fail_first = fail_first
        self._holds = holds

    def consume(self, message):
        self.seen.append(shown(message))
        if self._holds:
            threading.Event().wait()
        self._times[message.message_id] += 1
        return ConsumeResult.FAILURE if self._times[message.message_id] <= self._fail_first else ConsumeResult.SUCCESS


class Checker(rocketmq.TransactionChecker):
    def __init__(self, outcome):
        self.seen = []
        self._outcome = outcome

    def check(self, message):
        self.seen.append(message.message_id)
        return OUTCOMES[self._outcome]


class Driver:
    def __init__(self):
        self._clients = {}
        self._watchers = {}
        self._held = {}

    def ping(self):
        return "pong"

    def start_producer(self, name, topics, check="UNKNOWN", **access):
        checker = self._watchers[name] = Checker(check)
        self._start(name, rocketmq.Producer(configuration(**access), topics=topics, checker=checker))

    def send(self, name, **fields):
        receipt = self._clients[name].send(message_of(**fields))
        return {"id": receipt.message_id, "recall_handle": receipt.recall_handle}

    def send_in_transaction(self, name, outcome, **fields):
        producer = self._clients[name]
        transaction = producer.begin_transaction()
        receipt = producer.send(message_of(**fields), transaction)
        if outcome == "COMMIT":
            transaction.commit()
        elif outcome == "ROLLBACK":
            transaction.rollback()
        return {"id": receipt.message_id}

    def recall(self, name, topic, handle):
        found = self._clients[name].recall_message(topic, handle)
        return getattr(found, "message_id", found)

    def start_simple(self, name, group, topic, expression="*", **access):
        subscription = {topic: FilterExpression(expression)}
        self._start(name, rocketmq.SimpleConsumer(configuration(**access), group, subscription, await_duration=5))

    def receive(self, name, count, invisible_s):
        found = self._clients[name].receive(count, invisible_s) or []
        self._held.update({message.message_id: message for message in found})
        return [shown(message) for message in found]

    def ack(self, name, id):
        self._clients[name].ack(self._held[id])

    def change(self, name, id, invisible_s):
        self._clients[name].change_invisible_duration(self._held[id], invisible_s)

    def start_push(self, name, group, topic, expression="*", fail_first=0, holds=False, **access):
        listener = self._watchers[name] = Listener(fail_first, holds)
        subscription = {topic: FilterExpression(expression)}
        self._start(name, rocketmq.PushConsumer(configuration(**access), group, listener, subscription))

    def seen(self, name):
        return list(self._watchers[name].seen)

    def stop(self, name):
        self._clients.pop(name).shutdown()

    def _start(self, name, client):
        client.startup()
        self._clients[name] = client


def configuration(endpoint, access_key="", secret_key=""):
    return rocketmq.ClientConfiguration(
        endpoint, rocketmq.Credentials(access_key, secret_key), request_timeout=int(os.environ["REQUEST_S"])
    )


def message_of(topic, body, tag=None, keys=(), properties=None, group=None, deliver_ms=None):
    message = rocketmq.Message()
    message.topic, message.body = topic, body.encode()
    if tag:
        message.tag = tag
    for key in keys:
        message.keys = key
    for key, value in (properties or {}).items():
        message.add_property(key, value)
    if group:
        message.message_group = group
    if deliver_ms:
        message.delivery_timestamp = deliver_ms // 1000  # it knows seconds only
    return message


def main():
    wire, sys.stdout = sys.stdout, sys.stderr  # whatever else prints goes to standard error
    driver = Driver()
    for line in sys.stdin:
        request = json.loads(line)
        if request["cmd"] == "quit":
            break
        try:
            reply = {"result": getattr(driver, request["cmd"])(**request["args"])}
        except Exception:
            reply = {"error": traceback.format_exc(limit=-3)}
        print(json.dumps(reply), file=wire, flush=True)
    print(json.dumps({"result": None}), file=wire, flush=True)
    os._exit(0)  # its threads do not end by themselves


main()
