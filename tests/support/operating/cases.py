"""Which verbs are run, in this order, and what must come of each; a row of docs/compat.md is made of every one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .history import AWAY, BROKER, CLUSTER, COPY, DOOMED, LEVEL, ONLINE, SENT, SHOP, TOPIC, TRACES


class Outcome(Enum):
    """What a verb says of our cluster, compared with what it says of Apache's."""

    SAME = "the same"
    FORM = "the same but for numbers"
    WORKS = "works on both"
    SAME_REFUSAL = "refused by both in the same words"
    BOTH_REFUSE = "refused by both"
    REFUSED = "refused by ours"
    UNFOUNDED = "refused by Apache's"


SAME, FORM, WORKS = Outcome.SAME, Outcome.FORM, Outcome.WORKS
SAME_REFUSAL, BOTH_REFUSE, REFUSED = Outcome.SAME_REFUSAL, Outcome.BOTH_REFUSE, Outcome.REFUSED


@dataclass(frozen=True)
class Case:
    words: str
    outcome: Outcome = SAME
    note: str = ""
    only: str = ""
    """Compare only lines with this text: the rest depends on what else a cluster is used for."""

    @property
    def verb(self) -> str:
        return self.words.split()[0].lstrip("~")


OURS_ONLY = "mqadmin_"
NO_CONTROLLER = "there is no controller on these clusters"
NO_ELECTIONS = "these brokers elect no master"
NO_ACL = "these clusters ask for no accounts; with accounts: tests/support/account_verbs.py"
NO_COLD = "there is no cold-data control"

MQADMIN = [
    Case(f"updateTopic -t mqadmin_made -c {CLUSTER} -r 3 -w 3 -p 6"),
    Case("updateTopicList -f {folder}/topics.json -b {broker}"),
    Case(f"deleteTopic -t mqadmin_made -c {CLUSTER}"),
    Case(f"updateSubGroup -g mqadmin_made_group -c {CLUSTER} -r 5"),
    Case("updateSubGroupList -f {folder}/groups.json -b {broker}"),
    Case(f"setConsumeMode -b {{broker}} -t {SENT} -g {COPY} -m POP -q 1"),
    Case("deleteSubGroup -g mqadmin_made_group -b {broker}"),
    Case("updateBrokerConfig -b {broker} -k fileReservedTime -v 71"),
    Case(f"updateTopicPerm -t {SENT} -p 4 -b {{broker}}"),
    Case(f"updateTopicPerm -t {SENT} -p 6 -b {{broker}}"),
    Case(f"topicRoute -t {TOPIC}"),
    Case(f"topicRoute -t {TOPIC} -l"),
    Case(f"topicStatus -t {TOPIC}"),
    Case("topicStatus -t mqadmin_absent", SAME_REFUSAL),
    Case(f"topicClusterList -t {TOPIC}"),
    Case("addBroker -c {broker} -b /nowhere/broker.conf", SAME_REFUSAL),
    Case(f"removeBroker -c {{broker}} -b {CLUSTER}:{BROKER}:1", SAME_REFUSAL),
    Case("resetMasterFlushOffset -b {broker} -o 0", note="without effect on ours"),
    Case("brokerStatus -b {broker}", WORKS),
    Case(f"queryMsgById -t {TOPIC} -i {{offset_id}}"),
    Case(f"queryMsgByKey -t {TOPIC} -k k1", FORM),
    Case(f"queryMsgByUniqueKey -t {TOPIC} -i {{unique_id}}"),
    Case(f"queryMsgByOffset -t {TOPIC} -b {BROKER} -i 1 -o 0"),
    Case(f"queryMsgTraceById -i {{unique_id}} -t {TRACES}", FORM),
    Case(f"printMsg -t {TOPIC} -d true"),
    Case(f"printMsgByQueue -t {TOPIC} -a {BROKER} -i 0 -p true -d true -f true"),
    Case(f"sendMsgStatus -b {BROKER} -c 2", FORM),
    Case("brokerConsumeStats -b {broker}", only=OURS_ONLY),
    Case(f"producerConnection -g {SHOP} -t {TOPIC}"),
    Case(f"producerConnection -g mqadmin_absent -t {TOPIC}", SAME_REFUSAL),
    Case(f"consumerConnection -g {ONLINE}"),
    Case("consumerConnection -g mqadmin_absent", SAME_REFUSAL),
    Case(f"consumerProgress -g {AWAY} -t {TOPIC}"),
    Case(f"consumerProgress -g {ONLINE} -t {TOPIC} -s true"),
    Case("consumerProgress", only=OURS_ONLY),
    Case(f"consumerStatus -g {ONLINE}"),
    Case(f"consumerStatus -g {ONLINE} -i {{client}}", FORM),
    Case(f"cloneGroupOffset -s {AWAY} -d {COPY} -t {TOPIC} -o true"),
    Case("producer -b {broker}", only=OURS_ONLY),
    Case("clusterList", FORM),
    Case("clusterList -m", FORM),
    Case("topicList", only=OURS_ONLY),
    Case("topicList -c", only=OURS_ONLY),
    Case("updateKvConfig -s space -k key -v value"),
    Case("deleteKvConfig -s space -k key"),
    Case(f"wipeWritePerm -b {BROKER}", FORM),
    Case(f"addWritePerm -b {BROKER}", FORM),
    Case(f"resetOffsetByTime -g {AWAY} -t {TOPIC} -s 0"),
    Case(f"skipAccumulatedMessage -g {AWAY} -t {TOPIC}"),
    Case(f"updateOrderConf -t {TOPIC} -m put -v {BROKER}:2"),
    Case(f"updateOrderConf -t {TOPIC} -m get"),
    Case(f"updateOrderConf -t {TOPIC} -m delete"),
    Case("cleanExpiredCQ -b {broker}"),
    Case("deleteExpiredCommitLog -b {broker}"),
    Case("cleanUnusedTopic -b {broker}"),
    Case(f"statsAll -t {TOPIC}", FORM),
    Case(f"allocateMQ -t {TOPIC} -i 10.0.0.1,10.0.0.2"),
    Case(f"checkMsgSendRT -t {SENT} -a 2", FORM),
    Case(f"~clusterRT -a 2 -c {CLUSTER}", FORM, "goes on until it is stopped"),
    Case("getNamesrvConfig", WORKS, "each has settings the other has not"),
    Case("updateNamesrvConfig -k waitSecondsForService -v 44"),
    Case("getBrokerConfig -b {broker}", WORKS, "each has settings the other has not"),
    Case(f"getConsumerConfig -g {AWAY}"),
    Case(f"queryCq -t {TOPIC} -q 0 -i 0 -c 2 -b {{broker}} -g {ONLINE}", FORM),
    Case(f"sendMessage -t {SENT} -p hello -b {BROKER} -i 0", FORM),
    Case(f"consumeMessage -t {TOPIC} -b {BROKER} -i 0 -o 0"),
    Case(f"exportMetadata -c {CLUSTER} -f {{folder}}"),
    Case(f"exportConfigs -c {CLUSTER} -f {{folder}}"),
    Case(f"exportMetrics -c {CLUSTER} -f {{folder}}"),
    Case("exportMetadataInRocksDB -p {folder}/nowhere -t topics", note="looks at local files"),
    Case("exportPopRecord -b {broker} -d true", REFUSED, "popped messages are kept in the revive log, not in RocksDB"),
    Case("haStatus -b {broker}", FORM),
    Case(f"getSyncStateSet -a {{namesrv}} -b {BROKER}", BOTH_REFUSE, NO_CONTROLLER),
    Case(f"getBrokerEpoch -b {BROKER}", BOTH_REFUSE, NO_CONTROLLER),
    Case("getControllerMetaData -a {namesrv}", BOTH_REFUSE, NO_CONTROLLER),
    Case("getControllerConfig -a {namesrv}", BOTH_REFUSE, NO_CONTROLLER),
    Case("updateControllerConfig -a {namesrv} -k key -v value", BOTH_REFUSE, NO_CONTROLLER),
    Case(f"electMaster -a {{namesrv}} -b 1 -bn {BROKER} -c {CLUSTER}", BOTH_REFUSE, NO_CONTROLLER),
    Case(f"cleanBrokerMetadata -a {{namesrv}} -bn {BROKER} -c {CLUSTER}", BOTH_REFUSE, NO_CONTROLLER),
    Case("dumpCompactionLog -f {folder}/nowhere", SAME_REFUSAL, "looks at local files"),
    Case("getColdDataFlowCtrInfo -b {broker}", REFUSED, NO_COLD),
    Case(f"updateColdDataFlowCtrGroupConfig -b {{broker}} -g {AWAY} -v 100", REFUSED, NO_COLD),
    Case(f"removeColdDataFlowCtrGroupConfig -b {{broker}} -g {AWAY}", REFUSED, NO_COLD),
    Case("setCommitLogReadAheadMode -b {broker} -m 1", REFUSED, NO_COLD),
    Case("createUser -b {broker} -u someone -p secret", BOTH_REFUSE, NO_ACL),
    Case("updateUser -b {broker} -u someone -p secret", BOTH_REFUSE, NO_ACL),
    Case("deleteUser -b {broker} -u someone", BOTH_REFUSE, NO_ACL),
    Case("getUser -b {broker} -u someone", BOTH_REFUSE, NO_ACL),
    Case("listUser -b {broker}", BOTH_REFUSE, NO_ACL),
    Case("copyUser -f {broker} -t {broker} -u someone", BOTH_REFUSE, NO_ACL),
    Case("createAcl -b {broker} -s User:someone -r Topic:x -a Pub -d Allow", BOTH_REFUSE, NO_ACL),
    Case("updateAcl -b {broker} -s User:someone -r Topic:x -a Pub -d Allow", BOTH_REFUSE, NO_ACL),
    Case("deleteAcl -b {broker} -s User:someone", BOTH_REFUSE, NO_ACL),
    Case("getAcl -b {broker} -s User:someone", BOTH_REFUSE, NO_ACL),
    Case("listAcl -b {broker}", BOTH_REFUSE, NO_ACL),
    Case("copyAcl -f {broker} -t {broker} -s User:someone", BOTH_REFUSE, NO_ACL),
    Case("rocksDBConfigToJson -t topics -p {folder}/nowhere", SAME_REFUSAL, "looks at local files"),
    Case(f"checkRocksdbCqWriteProgress -c {CLUSTER} -n {{namesrv}}", REFUSED, "there is no RocksDB"),
    Case("switchTimerEngine -b {broker} -e F", REFUSED, "there is no RocksDB"),
    # Last, and taken away again: with a static topic about, Apache's tools cannot read the topics of their own broker.
    Case(f"updateStaticTopic -t mqadmin_static -qn 2 -c {CLUSTER}", REFUSED, "static topics are absent"),
    Case(f"remappingStaticTopic -t mqadmin_static -c {CLUSTER}", REFUSED, "static topics are absent"),
    Case(f"deleteTopic -t mqadmin_static -c {CLUSTER}"),
]

NOT_RUN = {"startMonitoring": "goes on for ever and prints nothing"}
"""Verbs of `mqadmin` that no case runs, and why."""

OURS_NOT_RUN = {
    "getSyncStateSet": "there is no group with elections in these clusters",
    "electMaster": "there is no group with elections in these clusters",
    "removeMember": "there is no group with elections in these clusters",
    "changeMaster": "there is no group with replicas in these clusters",
}

OURS = [
    Case(f"updateTopic -t mqadmin_ours -c {CLUSTER} -r 3 -w 3 -p 6"),
    Case("updateTopicList -f {folder}/topics.json -b {broker}"),
    Case(f"updateTopicPerm -t {SENT} -p 4 -b {{broker}}"),
    Case(f"updateTopicPerm -t {SENT} -p 6 -b {{broker}}"),
    Case("topicRoute -t mqadmin_ours"),
    Case(f"deleteTopic -t mqadmin_ours -c {CLUSTER}"),
    Case("topicStatus -t mqadmin_ours", SAME_REFUSAL),
    Case(f"topicStatus -t {TOPIC}"),
    Case(f"topicClusterList -t {TOPIC}"),
    Case("topicList", only=OURS_ONLY),
    Case("topicList --all", only=OURS_ONLY),
    Case("topicList -c", only=OURS_ONLY),
    Case(f"allocateMQ -t {TOPIC} -i 10.0.0.1,10.0.0.2"),
    Case(f"statsAll -t {TOPIC}", FORM),
    Case(f"updateSubGroup -g mqadmin_our_group -c {CLUSTER} -r 5"),
    Case("updateSubGroupList -f {folder}/groups.json -b {broker}"),
    Case("getConsumerConfig -g mqadmin_our_group"),
    Case("deleteSubGroup -g mqadmin_our_group -b {broker}"),
    Case("groupList", only=OURS_ONLY),
    Case(f"setConsumeMode -b {{broker}} -t {SENT} -g {COPY} -m PULL"),
    Case(f"consumerProgress -g {ONLINE} -t {TOPIC} -s true"),
    Case("consumerProgress", only=OURS_ONLY),
    Case(f"whoConsumes -t {TOPIC}"),
    Case(f"consumeTimeSpan -g {ONLINE} -t {TOPIC}"),
    Case(f"getConsumerStatus -g {ONLINE} -t {TOPIC}"),
    Case(f"resetOffsetByTime -g {AWAY} -t {TOPIC} -s 0 --preview"),
    Case(f"resetOffsetByTime -g {AWAY} -t {TOPIC} -s 0"),
    Case(f"cloneGroupOffset -s {AWAY} -d {COPY} -t {TOPIC} -o true"),
    Case(f"skipAccumulatedMessage -g {AWAY} -t {TOPIC}"),
    Case(f"consumerConnection -g {ONLINE}"),
    Case("consumerConnection -g mqadmin_absent", SAME_REFUSAL),
    Case(f"consumerStatus -g {ONLINE}", FORM),
    Case(f"producerConnection -g {SHOP} -t {TOPIC}"),
    Case("producer -b {broker}", only=OURS_ONLY),
    Case(f"queryMsgById -t {TOPIC} -i {{offset_id}}"),
    Case(f"queryMsgByUniqueKey -t {TOPIC} -i {{unique_id}}"),
    Case(f"queryMsgByUniqueKey -t {TOPIC} -i {{unique_id}} -g {ONLINE} -d {{client}}", FORM),
    Case(f"queryMsgByKey -t {TOPIC} -k k1"),
    Case(f"queryMsgByOffset -t {TOPIC} -b {BROKER} -i 1 -o 0"),
    Case(f"queryMsgTraceById -i {{unique_id}} -t {TRACES}", FORM),
    Case(f"printMsg -t {TOPIC}"),
    Case(f"searchMsg -t {TOPIC} --where TAGS='Tag1'"),
    Case(f"searchMsg -t {TOPIC} --where TAGS=", SAME_REFUSAL),
    Case(f"tailMsg -t {TOPIC} --wait 100ms"),
    Case("delayLevels", only=f'"level": {LEVEL}'),
    Case("delayedMessages", only=SENT),
    Case("timerStatus", WORKS, "an idle broker of ours has no time of its last delivery"),
    Case("timerMessages", only=OURS_ONLY),
    Case("recallMessage -r none", SAME_REFUSAL, "a handle that is none; real ones: tests/interop/test_looking.py"),
    Case("openTransactions", only=OURS_ONLY),
    Case("givenUpTransactions"),
    Case("resumeCheckHalfMessage -i {offset_id}", SAME_REFUSAL, "only of TRANS_CHECK_MAX_TIME_TOPIC"),
    Case(f"printMsgByQueue -t {TOPIC} -a {BROKER} -i 0 -f true"),
    Case(f"consumeMessage -t {TOPIC} -b {BROKER} -i 0 -o 0"),
    Case("decodeMessageId -i {offset_id}", FORM),
    Case(f"queryCq -t {TOPIC} -q 0 -i 0 -c 2 -b {{broker}}", FORM),
    Case(f"sendMessage -t {SENT} -p hello -b {BROKER} -i 0", FORM),
    Case(f"checkMsgSendRT -t {SENT} -a 2", FORM),
    Case(f"sendMsgStatus -b {BROKER} -c 2", FORM),
    Case("clusterRT -a 2", FORM),
    Case("dlqList", only=OURS_ONLY),
    Case(f"dlqShow -g {DOOMED}"),
    Case(f"dlqRedrive -g {DOOMED} --dryRun"),
    Case(f"dlqExport -g {DOOMED} -f {{folder}}/letters.jsonl"),
    Case(f"dlqRedrive -g {DOOMED} -t {SENT}", FORM),
    Case("clusterList", FORM),
    Case("clusterList -m", FORM),
    Case("brokerStatus -b {broker}", WORKS),
    Case("getBrokerConfig -b {broker}", WORKS, "each has settings the other has not"),
    Case("updateBrokerConfig -b {broker} -k fileReservedTime -v 70"),
    Case("topicSummary", only=OURS_ONLY),
    Case("groupSummary", only=OURS_ONLY),
    Case("clusterRates --seconds 0.1", FORM),
    Case("proxyList"),
    Case("haStatus -b {broker}", FORM),
    Case(f"getSyncStateSet -a {{namesrv}} -b {BROKER}", BOTH_REFUSE, NO_ELECTIONS),
    Case(f"electMaster -a {{namesrv}} -b 1 -bn {BROKER} -c {CLUSTER}", BOTH_REFUSE, NO_ELECTIONS),
    Case(f"removeMember -a {{namesrv}} -b 1 -bn {BROKER}", BOTH_REFUSE, NO_ELECTIONS),
    Case(f"getBrokerEpoch -b {BROKER}", BOTH_REFUSE, NO_ELECTIONS),
    Case("brokerSettings -b {broker}", WORKS, "each has settings the other has not"),
    Case("changeBrokerSetting -b {broker} -k fileReservedTime -v 72"),
    Case("changeBrokerSetting -b {broker} -k storePathRootDir -v /", SAME_REFUSAL, "only what is safe to change"),
    Case("brokerConsumeStats -b {broker}", only=TOPIC),
    Case("cleanExpiredCQ -b {broker}"),
    Case("deleteExpiredCommitLog -b {broker}"),
    Case("cleanUnusedTopic -b {broker}"),
    Case("getNamesrvConfig", WORKS, "each has settings the other has not"),
    Case("updateNamesrvConfig -k waitSecondsForService -v 45"),
    Case("updateKvConfig -s space -k key -v value"),
    Case("getKvConfig -s space"),
    Case("deleteKvConfig -s space -k key"),
    Case(f"updateOrderConf -t {TOPIC} -m put -v {BROKER}:2"),
    Case(f"updateOrderConf -t {TOPIC} -m get"),
    Case(f"updateOrderConf -t {TOPIC} -m delete"),
    Case(f"wipeWritePerm -b {BROKER}", FORM),
    Case(f"addWritePerm -b {BROKER}", FORM),
    Case(f"exportMetadata -c {CLUSTER} -f {{folder}}"),
    Case(f"exportConfigs -c {CLUSTER} -f {{folder}}"),
    Case(f"exportMetrics -c {CLUSTER} -f {{folder}}"),
    Case("createUser -b {broker} -u someone -p secret", BOTH_REFUSE, NO_ACL),
    Case("updateUser -b {broker} -u someone -p secret", BOTH_REFUSE, NO_ACL),
    Case("deleteUser -b {broker} -u someone", BOTH_REFUSE, NO_ACL),
    Case("getUser -b {broker} -u someone", BOTH_REFUSE, NO_ACL),
    Case("listUser -b {broker}", BOTH_REFUSE, NO_ACL),
    Case("copyUser -f {broker} -t {broker} -u someone", BOTH_REFUSE, NO_ACL),
    Case("createAcl -b {broker} -s User:someone -r Topic:x -a Pub -d Allow", BOTH_REFUSE, NO_ACL),
    Case("updateAcl -b {broker} -s User:someone -r Topic:x -a Pub -d Allow", BOTH_REFUSE, NO_ACL),
    Case("deleteAcl -b {broker} -s User:someone", BOTH_REFUSE, NO_ACL),
    Case("getAcl -b {broker} -s User:someone", BOTH_REFUSE, NO_ACL),
    Case("listAcl -b {broker}", BOTH_REFUSE, NO_ACL),
    Case("copyAcl -f {broker} -t {broker} -s User:someone", BOTH_REFUSE, NO_ACL),
    Case("explainAcl -b {broker} -u someone -a Pub -r Topic:x", BOTH_REFUSE, NO_ACL),
    Case("doctor --pause 0", WORKS, "finds what is wrong with each"),
]
