"""Programs that the demo's agents run in their sandboxes, copied there with the source tree."""
