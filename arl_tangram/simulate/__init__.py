"""The scheduler in virtual time: what a workload would have taken under a policy, without running any of it.

`calls` says what is simulated, `workloads` draws it, `engine` runs it through the core, `results` is what comes out.
`gpus` declares a pool of GPUs, and `baselines` sets one up as others do.
"""
