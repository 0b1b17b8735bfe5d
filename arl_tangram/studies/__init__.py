"""The command `simulate`: what was published, as simulations that anyone can run, doubt and vary.

`runs` and `contenders` say what one simulation is, `needs` searches for the smallest capacity, `training` runs step
after step. The sections of the table are `coding`, `ablation`, `deepsearch` and `mopd`, and `paper` says how
large they are; `where` varies the parameters. `tasks` runs it all, `show`, `charts` and `records` tell what came of it.
"""
