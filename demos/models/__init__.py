"""What more than one demo uses: models, checkpoints, text, pictures, types of command lines."""
