"""`bench ray`: what it costs to ask a shared runtime instead of one of this process."""
