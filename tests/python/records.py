"""Describes the game records of a folder as sgfmill reads them, in JSON.

Arguments: `make` or `read`, and the folder. `make` first writes records with sgfmill: of many sizes and charsets, with
handicaps, set-up stones, variations, and comments with escapes.
"""

import json
import pathlib
import random
import sys

from sgfmill.sgf import Sgf_game

RECORDS = 60
# Names that a charset has; the last bytes of some in Big5 and Shift_JIS are those of `\\` and `]`.
NAMES = {
    "UTF-8": ["Jörg", "古力", "이세돌", "a] \\ [b"],
    "ISO-8859-1": ["Jörg", "Renée", "plain \\"],
    "GB2312": ["古力", "柯洁"],
    "GB18030": ["古力", "許"],
    "Big5": ["許", "功", "a]許"],
    "Shift_JIS": ["ソ", "ゾ", "表", "能"],
    "EUC-JP": ["日本", "ソ"],
    "EUC-KR": ["이세돌", "박정환"],
    "windows-1251": ["Иван"],
    "iso-8859-2": ["Łukasz"],
}
COMMENTS = ["", "two\nlines", "a [b] c", "ends with \\", "] ; ( )", "a:b", "tab\tand  spaces "]


def made(number):
    """A record; the number chooses the charset and is the seed of all other choices."""
    rng = random.Random(number)
    charset = list(NAMES)[number % len(NAMES)]
    size = rng.randint(1, 25)
    game = Sgf_game(size, charset)
    root = game.get_root()
    root.set("PB", rng.choice(NAMES[charset]))
    root.set("PW", rng.choice(NAMES[charset]))
    if number % 3:
        root.set("KM", rng.randint(-20, 30) / 2)
    cells = [(row, column) for row in range(size) for column in range(size)]
    rng.shuffle(cells)
    black = [cells.pop() for _ in range(rng.randint(0, min(4, len(cells))))]
    white = [cells.pop() for _ in range(rng.randint(0, min(2, len(cells))))] if number % 2 else []
    root.set_setup_stones(black, white)
    if len(black) >= 2 and not white:
        root.set("HA", len(black))
    nodes = [root]
    for _ in range(rng.randint(0, 40)):
        # Half of the nodes continue the latest one, and others start variations.
        node = (nodes[-1] if rng.random() < 0.5 else rng.choice(nodes)).new_child()
        node.set_move(rng.choice("bw"), cells.pop() if cells and rng.random() < 0.9 else None)
        comment = rng.choice(COMMENTS) + rng.choice(["", rng.choice(NAMES[charset])])
        if comment:
            node.set("C", comment)
        nodes.append(node)
    return game


def point(size, move):
    """Column and row from the top left; nothing for a pass."""
    return [] if move is None else [move[1], size - 1 - move[0]]


def described(name, game):
    size, line = game.get_size(), game.get_main_sequence()
    black, white, _ = game.get_root().get_setup_stones()
    stones = [["B", *point(size, cell)] for cell in black] + [["W", *point(size, cell)] for cell in white]
    moves = [node.get_move() for node in line]

    def nodes(node):
        stack, count = [node], 0
        while stack:
            count += 1
            stack.extend(stack.pop())
        return count

    return {
        "name": name,
        "size": size,
        "komi": game.get_komi(),
        "black": game.get_player_name("b"),
        "white": game.get_player_name("w"),
        "stones": sorted(stones),
        "moves": [[color.upper(), *point(size, move)] for color, move in moves if color],
        "comments": [node.get("C") for node in line if node.has_property("C")],
        "nodes": nodes(game.get_root()),
    }


def main():
    task, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if task == "make":
        for number in range(RECORDS):
            (folder / f"{number:02}.sgf").write_bytes(made(number).serialise())
    files = sorted(folder.glob("*.sgf"))
    print(json.dumps([described(path.name, Sgf_game.from_bytes(path.read_bytes())) for path in files]))


main()
