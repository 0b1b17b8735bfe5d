"""What a GPU pool hosts: torch modules, engines behind HTTP, processes."""
