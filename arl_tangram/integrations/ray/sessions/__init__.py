"""Between two ends of a session: what one says comes to the other in order, each once, whatever becomes of the way.

numbering    numbers and acknowledgements
greeting     the words with which one begins, and `greeter`, who says them
pump         the end at a client or an agent; that of the owner is in its `roster`
"""
