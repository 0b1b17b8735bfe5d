"""A Docker image made of files of this machine: a shell, the usual programs, this Python; no registry is asked.

The demo and the benches run their containers from one, so that the same programs run inside and outside. Python and
the programs' libraries lie in it where they lie here.
"""

from arl_tangram.machine_image.build import image_of_this_machine
from arl_tangram.machine_image.python_files import interpreter

__all__ = ["image_of_this_machine", "interpreter"]
