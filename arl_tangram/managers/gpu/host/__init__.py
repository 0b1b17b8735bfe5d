"""Memory of this machine: what is left of it, pages of it, and what evicted services are kept in."""
