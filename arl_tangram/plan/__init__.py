"""The command `plan`: how much of each resource keeps what a recorded run had, and what is saved by it.

`resources` are what can be set, `search` finds the smallest of one, `goal` is what is to be kept and runs the
simulator, `needs` is what one policy needs, `comparison` that of the policy and of the baselines, `in_flight` how many
rollouts are worth having at once. `show`, `settings`, `record` and `pictures` tell that, `command` is the command.
"""
