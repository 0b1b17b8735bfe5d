"""Other people's frameworks, each in a module of its own; nothing imports these but their users."""
