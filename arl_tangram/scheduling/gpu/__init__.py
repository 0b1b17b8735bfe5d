"""Which services are on which devices, who uses them, and what goes when another needs the room; pure."""
