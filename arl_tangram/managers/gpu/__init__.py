"""GPUs: services that are restored when an action needs them and evicted when another needs the room.

How what is decided and what is real relate (an arrow: has one, or several)::

    decided by the scheduler          made real here                      where
    ------------------------          --------------                      -----
    Instance  (service, dop)  <-----  Hosted  ------> Backend             (its service)
        ^                               | stay: the last Stay that was decided
        |                               | there: the Stay that has memory now
        |                               v
    Seat  <-----------  GpuLease ---> Stay  (from the decision to restore to that to evict)
        |              (one action)     | places, once there is room: one for each device
        v                               v
    Chunk  (dop numbers)              Place  -------> Device, Region      (Region: a part of the device's arena;
        | each number                                    ^                 none for who keeps its memory itself)
        v                                                |
    number of a device  <-----------  Site  -------------+
                                        | used: bytes of each Hosted that has memory there
                                        | leaving, settled: evictions to wait for, and who is last in line

Its rooms, each of which imports only from those after it: `discovery` (which devices there are), `instances` (how
services come and go), `devices` (their memory, and who has which bytes of it), `host` (memory of this machine).

A `GpuNode` is a group of devices in which chunks are made: those of the pool, or those of one loan. Numbers go on from
node to node, and stay with their devices.
"""
