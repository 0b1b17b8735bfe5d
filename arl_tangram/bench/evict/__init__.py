"""The command `bench evict`: what each eviction policy loses by restoring again, on requests in their order."""
