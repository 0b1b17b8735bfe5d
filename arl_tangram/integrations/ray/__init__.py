"""One pool for many processes and nodes: the scheduler in a Ray actor, thin clients, an agent on each node."""
