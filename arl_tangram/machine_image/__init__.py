"""A Docker image made of files of this machine: a shell, the usual programs, this Python; no registry is asked.

The demo and the benches run their containers from one, so that the same programs run inside and outside. Python and
the programs' libraries lie in it where they lie here.
"""
