"""What services have in common that are servers: their processes, their memory, and what they answer."""
