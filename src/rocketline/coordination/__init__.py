"""Who leads a group of brokers: the record that all its members agree on, and where it is kept.

The members of a group share one `GroupRecord`: who is master, since which epoch, and which members have everything that was
acknowledged. It changes only by compare-and-set. A `Coordinator` keeps it: etcd (`etcd.py`) in earnest, memory (`memory.py`)
in simulations. What a member does about the record is decided elsewhere (`broker/replication`).
"""

from rocketline.coordination.coordinator import Agreed, Coordinator, Live, View
from rocketline.coordination.record import GroupRecord, Member

__all__ = ["Agreed", "Coordinator", "GroupRecord", "Live", "Member", "View"]
