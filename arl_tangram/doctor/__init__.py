"""The command line's doctor: what of this machine can be used, why the rest cannot, and what dead runs have left."""
