"""The owner of a shared runtime: one scheduler for the sessions of all clients and nodes; of Ray it knows nothing.

owner        greetings, frames, and the end of sessions
roster       the sessions, and when they were heard of last
nodes        what the nodes are; `keeping`: how they come, fall silent, come back or are given up
decider      the scheduler, made when the nodes are known; `breaking`: the breakers of its quotas
holdings     what one client has, of `holding`: by what it has `declared`; `spending`, `judging`: what its calls took
             of rates and budgets, and how they went
endings      clients that are gone, until the nodes have ended what these had
asking       what clients ask beside their calls
recovering   the beginning of an owner that was started again: it gathers what is held, `rebuilding` lets a new
             scheduler hold it, and `adopting` the client; `memory`: what it knows beside that; `earlier`: of one before
"""
