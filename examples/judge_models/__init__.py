"""Two small models whose weights come from the package index, in plain torch: no hub, no framework of models."""
