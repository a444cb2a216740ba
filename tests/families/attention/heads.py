"""Head dimensions for which no tile has been made."""

# Rows, keys, D and Dv: columns that end within a tile's first 64 or behind them, fewer of v's than
# of q's and the other way round; lengths around blocks of 64, 96 and 128. Beside them, of the forms
# that no other list has (80, 96, 192 with 128), whole ones.
BETWEEN_TILES = (
    (130, 129, 40, 24),
    (65, 130, 72, 72),
    (193, 127, 80, 80),
    (70, 257, 88, 64),
    (129, 128, 96, 96),
    (66, 130, 104, 120),
    (64, 65, 64, 80),
    (130, 193, 192, 128),
    (97, 95, 136, 72),
    (70, 97, 200, 136),
)
