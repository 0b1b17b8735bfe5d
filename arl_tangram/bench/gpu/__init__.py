"""The bench `bench gpu`: one GPU, from the speed of its link to teachers that take turns on it; dry on a CPU device."""
