"""What type checkers see of the package, as `make lint` checks it."""
