"""Settings of a broker that contradict each other about its role, and the words of the refusal."""

from __future__ import annotations

WANTING_REPLICAS = [
    ({"brokerId": "1"}, ["brokerId=1", "brokerRole=SLAVE", "brokerId=0"]),
    ({"brokerRole": "SLAVE"}, ["brokerRole=SLAVE", "brokerId"]),
    ({"enableControllerMode": "true"}, ["enableControllerMode=true", "rocketline.coordination"]),
    ({"enableDLegerCommitLog": "true"}, ["enableDLegerCommitLog=true", "rocketline.coordination"]),
]
