"""The bench `bench swap`: what it costs to restore a service and to evict it, beside plain copies of the same bytes."""
