"""GPUs: services that are restored when an action needs them and evicted when another needs the room."""
