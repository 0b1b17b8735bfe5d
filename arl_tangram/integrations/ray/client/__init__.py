"""A shared runtime in one process: calls run here, and who starts when is decided by the owner, elsewhere.

shared       the runtime; `steering`: what can be asked of the owner beside calls, by `questions`
dispatcher   what calls want becomes commands; `telling`: events tell who waits; `held`: all that is held here, and
             `demands`: what is declared
breakers     tell the owner how calls went
cores        the cores of all nodes, and sandboxes there: `sandbox`, `remote_lease`, `folders`
gpus         the GPUs of a node, and the services on them
calls        the calls to the agent of one node, of which all that is made
"""
