"""The public functions, one file per family; `thunderkittens` exports them."""
