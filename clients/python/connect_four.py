"""The rules of Connect Four and the observation of the server's networks."""

import numpy as np

ROWS, COLUMNS = 6, 7


class Board:
    """A position. The player to move is `X` when the number of stones on the board is even."""

    def __init__(self, moves=""):
        """Plays these columns, `1` to `7` each, from the empty board."""
        self.columns = [[] for _ in range(COLUMNS)]
        self.moves = ""
        for move in moves:
            self.play(int(move) - 1)

    def legal(self):
        """Returns the playable columns as booleans `[7]`; none once the game is over."""
        room = [len(column) < ROWS for column in self.columns]
        return np.array(room) & (not self.is_won())

    def play(self, column):
        """Drops a stone of the player to move."""
        if not self.legal()[column]:
            raise ValueError(f"column {column + 1} cannot be played after {self.moves or 'nothing'}")
        self.columns[column].append(len(self.moves) % 2)
        self.moves += str(column + 1)

    def stone(self, column, row):
        """Returns the owner of the stone there, rows counted from below: 0, 1, or None."""
        inside = 0 <= column < COLUMNS and 0 <= row < len(self.columns[column])
        return self.columns[column][row] if inside else None

    def is_won(self):
        """Returns whether the last stone made a line of four."""
        if not self.moves:
            return False
        column = int(self.moves[-1]) - 1
        row = len(self.columns[column]) - 1
        player = self.stone(column, row)

        def reach(step):
            count = 0
            while self.stone(column + (count + 1) * step[0], row + (count + 1) * step[1]) == player:
                count += 1
            return count

        lines = [(1, 0), (0, 1), (1, 1), (1, -1)]
        return any(1 + reach(line) + reach((-line[0], -line[1])) >= 4 for line in lines)

    def is_over(self):
        """Returns whether the game is over: won, or a full board."""
        return not self.legal().any()

    def observation(self):
        """Returns the network's input, float32 `[3, 6, 7]`: the stones of the player to move, those of the opponent, and ones
        if the player to move is the first player. The top row comes first."""
        planes = np.zeros((3, ROWS, COLUMNS), np.float32)
        to_move = len(self.moves) % 2
        for column, stones in enumerate(self.columns):
            for row, player in enumerate(stones):
                planes[int(player != to_move), ROWS - 1 - row, column] = 1
        planes[2] = to_move == 0
        return planes

    def __str__(self):
        signs = {None: ".", 0: "X", 1: "O"}
        rows = [" ".join(signs[self.stone(column, row)] for column in range(COLUMNS)) for row in reversed(range(ROWS))]
        return "\n".join([*rows, " ".join(str(column + 1) for column in range(COLUMNS))])
