"""Copies of a log on several brokers of one name.

One of them is the master: clients send to it. The others follow: they copy its log byte by byte, and its tables. Roles are
fixed by settings (`brokerRole`, `brokerId`), or change while the brokers run (`coordination`, or an operator).

    roles.py      what this broker is now: master, replica or neither; changes of that
    giving.py     whether a master may give out what needs no replica's word
    source.py     the HA port: replicas connect here and are sent the log
    follower.py   a replica's connection to its master
    acks.py       how far the replicas are that count
    epochs.py     which master wrote which span of the log
    tables.py     copying topics, groups, offsets, delays, timers and accounts
    table_changes.py  a master answers a change of topics and groups when replicas have copied it
    member.py     its part in the election of a group: lease, record, steps; what to do decides rules.py
    in_sync.py    which members have everything
    tickets.py    who proved to the broker that he is a replica
    config.py     settings
"""
