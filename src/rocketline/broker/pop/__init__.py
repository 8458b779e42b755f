"""Pop mode on the broker: it picks the queues, keeps the offsets and delivers again what nobody acknowledged.

The life of a popped message:

1.  A pop looks at the group's retry topic first (20 of 100 times), then at the queues of the topic, then at the retry
    topic if there is still room (`popping`). The event loop is the lock on a queue: a read, its check point and the
    step of the offset happen in one go, so two pops never get the same message.
2.  What one queue gives is covered by a check point: group, queue, offsets, pop time, invisible time. No message is
    answered before its check point is kept. It goes to the revive log at once (`revive_log`), or first into memory if
    that is switched on (`checkpoints`), where most are acknowledged before they ever have to be written.
3.  The group's offset moves past messages whose check point is in the log, or is acknowledged as a whole, in the order
    they were popped. Offsets reach the disk only after the log did: no crash can keep an offset and lose the check
    point behind it.
4.  An acknowledgement marks its message in the check point in memory, or becomes a record of the revive log, together
    with others of its check point that arrive in the same read (`gathering`). Changing the invisible time is a new
    check point for the one message and an acknowledgement of the old one, in this order.
5.  The revive log is a topic of timer messages: a check point appears in its revive queue one second before the
    invisible time ends, acknowledgements when it ends. `reviver` reads these queues in order, matches both, and two
    seconds after the end puts what is left on the group's retry topic for this topic, with one more attempt counted, or
    on the dead-letter topic when there were enough. A check point on a retry topic stays there.
6.  The revive queue's own offset stands before the oldest check point that is not settled: whatever stops the broker,
    it begins there again. After a crash `recovering` moves group offsets past what the log says was popped, so that
    what was acknowledged does not come again.

Popping in order has no check points (`ordered`): the queue gives nothing more until its messages are acknowledged or
visible again, and then gives the same ones.
"""
