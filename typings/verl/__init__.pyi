# The part of verl 0.9.1 that arl_tangram.integrations.verl uses, by hand: verl itself carries no types.
