"""The bench `bench aoe`: what "allocate on execution" costs in Docker containers, and what it gives."""
