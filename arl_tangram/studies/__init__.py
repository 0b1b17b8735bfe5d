"""The command `simulate`: what was published, as simulations that anyone can run, doubt and vary.

`runs` and `contenders` say what one simulation is, `least` and `needs` search for the smallest capacity, `training` runs
one step after the other. The sections of the table are `coding`, `ablation`, `mopd` and `deepsearch`, `sizes` says how
large they are and `paper` puts them together; `where` varies the parameters. `tasks` runs it all, `show` prints it.
"""
