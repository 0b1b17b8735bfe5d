"""The command `replay`, and what it is made of: a recording becomes a workload, which is run in virtual time.

`traced` and `recording` read the files, `traced_workload` and `recorded` make workloads of them, `source` knows which
of the two a file is, `variants` runs a workload otherwise than it was recorded, `show` and `command` print that.
"""
