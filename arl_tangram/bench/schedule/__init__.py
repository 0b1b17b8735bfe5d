"""The command `bench schedule`: policies on a grid of workloads in virtual time, and how many times better one is."""
