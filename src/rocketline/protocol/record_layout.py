"""The layout of a stored record: the one place that knows where its fields are.

     0  TOTALSIZE       4   whole record, this field included
     4  MAGIC           4   v1 0xDAA320A7, v2 0xDAA320AB (topic length in 2 bytes), blank 0xCBD43194
     8  BODYCRC         4   CRC-32 of the body as stored, without its top bit
    12  QUEUEID         4
    16  FLAG            4   the application's, opaque
    20  QUEUEOFFSET     8
    28  LOGOFFSET       8   position of this record in the commit log
    36  SYSFLAG         4
    40  BORNTIMESTAMP   8
    48  BORNHOST        8   or 20 when SYSFLAG has BORN_IPV6: address, then the port in 4 bytes
    56  STORETIMESTAMP  8
    64  STOREHOST       8   or 20 when SYSFLAG has STORE_IPV6
    72  RECONSUMETIMES  4
    76  PREPAREDOFFSET  8   log offset of the half message this one commits, else 0
    84  body length 4 + body, topic length 1 (v1) or 2 (v2) + topic, properties length 2 + properties

All numbers are big-endian and signed. The rest of a log file that is too short for the next record holds a *blank*: its size
in TOTALSIZE and the blank magic.

Positions behind BORNHOST are those of a record with two IPv4 hosts; each IPv6 host moves what follows by 12 bytes. The
compiled code has the same numbers (`native/layout.h`); a test compares them.
"""

from __future__ import annotations

import struct

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
MAGIC_BLANK = -875286124

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_IPV6 = 0x10
STORE_IPV6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80

HOSTS_MASK = BORN_IPV6 | STORE_IPV6
# Prepared and rolled back messages are in no queue. A batch kept as one record belongs into a queue of another format.
NOT_QUEUED = TRANSACTION_PREPARED | INNER_BATCH

SIZE_AT = 0
MAGIC_AT = 4
BODY_CRC_AT = 8
QUEUE_ID_AT = 12
FLAG_AT = 16
QUEUE_OFFSET_AT = 20
LOG_OFFSET_AT = 28
SYS_FLAG_AT = 36
BORN_MS_AT = 40
BORN_HOST_AT = 48
STORE_MS_AT = 56
STORE_HOST_AT = 64
RECONSUME_TIMES_AT = 72
PREPARED_OFFSET_AT = 76
BODY_BYTES_AT = 84
BODY_AT = 88
IPV6_EXTRA_BYTES = 12

MIN_RECORD_BYTES = BODY_AT + 3
BLANK_BYTES = 8

# One head per combination of host widths, chosen by SYSFLAG & HOSTS_MASK.
HEADS = {
    born | store: struct.Struct(f">iiiiiqqiq{20 if born else 8}sq{20 if store else 8}siqi")
    for born in (0, BORN_IPV6)
    for store in (0, STORE_IPV6)
}
"""Everything before the body, in order: the fields above up to the length of the body."""
HEAD_BYTES = {hosts: head.size for hosts, head in HEADS.items()}
"""Bytes before the body, by SYSFLAG & HOSTS_MASK."""
