"""A node of a shared runtime: the real managers of its pools, for sessions elsewhere.

agent        a session of the owner, who tells it of seats and of whom to end; clients call it
offering     what its pools have
going        the calls of one session that go on
tenancy      what one session has here: sandboxes, `leases` of cores, and folders on their way, in the `spool`
seats        those on its GPUs
"""
