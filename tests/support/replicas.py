"""Settings of a broker that only make sense with replication, and the words of the refusal."""

from __future__ import annotations

WANTING_REPLICAS = [
    ({"brokerId": "1"}, ["brokerId=1", "set brokerId=0", "brokerName"]),
    ({"brokerRole": "SLAVE"}, ["brokerRole=SLAVE", "set brokerRole=ASYNC_MASTER"]),
    ({"brokerId": "2", "brokerRole": "SLAVE"}, ["brokerId=2", "brokerRole=SLAVE", "set brokerId=0"]),
    ({"brokerRole": "SYNC_MASTER"}, ["brokerRole=SYNC_MASTER", "set brokerRole=ASYNC_MASTER", "SYNC_FLUSH"]),
    ({"enableControllerMode": "true"}, ["enableControllerMode=true", "set enableControllerMode=false"]),
    ({"enableDLegerCommitLog": "true"}, ["enableDLegerCommitLog=true", "set enableDLegerCommitLog=false"]),
]
