"""Models that more than one demo uses."""
