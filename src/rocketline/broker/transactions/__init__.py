"""Transactional messages: kept aside as half messages until their producer says commit or roll back.

    half_messages  takes them in, and turns one into the real message when its transaction commits
    ops            the notes of which half messages were ended
    checker        asks producers about those that nobody ended

All of it is in the log, as Apache writes it: half messages in RMQ_SYS_TRANS_HALF_TOPIC, the notes in
RMQ_SYS_TRANS_OP_HALF_TOPIC, and how far both were looked through as the offsets of the group CID_RMQ_SYS_TRANS. The note
follows the real message in the log. A crash between them leaves a half message that looks open; before anybody is asked
about it the key index is, so it is not committed twice.
"""
