"""The command `bench faults`: bodies misbehave in every way, in a trainer that is watched from outside."""
