"""The life of an instance: opened with its pool, restored where there is room, evicted when another needs the room."""
