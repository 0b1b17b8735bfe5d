"""The command `bench`: measure the library on this machine, beside what people use instead."""
