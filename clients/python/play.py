"""Plays Connect Four against an inference server, with grpcio and the published .proto files only.

    python play.py 127.0.0.1:7003                       you play first
    python play.py 127.0.0.1:7003 --opponent random     a random player plays first
    python play.py localhost:7003 --ca ca.pem --cert client.pem --key client.key --token token
"""

import argparse
import pathlib
import random
import sys

import grpc

import connection
from connect_four import COLUMNS, Board

PROTOS = pathlib.Path(__file__).resolve().parents[2] / "proto" / "proto"


class Server:
    """A player that searches on the inference server."""

    def __init__(self, arguments):
        # grpcio compiles .proto files from the module search path.
        sys.path.append(str(arguments.protos))
        self.messages, services = grpc.protos_and_services("zerofleet/inference/v1/inference.proto")
        self.channel = connection.channel(arguments)
        self.service = services.InferenceStub(self.channel)
        self.simulations = arguments.simulations
        self.metadata = tuple(connection.headers(arguments).items())

    def choose(self, board):
        """Returns the column to play and the analysis of the search."""
        moves = self.messages.NotationList(moves=list(board.moves))
        position = self.messages.Position(game="connect_four", notation=moves)
        request = self.messages.SelectMoveRequest(position=position, simulations=self.simulations)
        response = self.service.SelectMove(request, timeout=60, metadata=self.metadata)
        return int(response.move) - 1, response.analysis

    def close(self):
        self.channel.close()


def columns(board):
    """Returns the playable columns, from 0."""
    return [column for column in range(COLUMNS) if board.legal()[column]]


def read_column(board):
    """Reads a legal column from the terminal."""
    while True:
        text = input("your column: ").strip()
        if text in [str(column + 1) for column in columns(board)]:
            return int(text) - 1
        print(f"{text!r} cannot be played here")


def play(server, opponent):
    """Plays one game, in which the opponent moves first, and returns the outcome in words."""
    board = Board()
    while not board.is_over():
        if len(board.moves) % 2 == 0:
            column, line = opponent(board), "X plays {}"
        else:
            column, analysis = server.choose(board)
            line = f"O, the server, plays {{}}: {analysis.simulations} simulations by weights version "
            line += f"{analysis.version} expect {analysis.value:+.2f}"
        board.play(column)
        print(f"\n{line.format(column + 1)}\n{board}")
    if not board.is_won():
        return "a draw"
    return "the server won" if len(board.moves) % 2 == 0 else "X won"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    connection.add_options(parser)
    parser.add_argument("--opponent", choices=["me", "random"], default="me")
    parser.add_argument("--simulations", type=int, default=200, help="simulations for each move of the server")
    parser.add_argument("--seed", type=int, help="seed of the random opponent")
    parser.add_argument("--protos", type=pathlib.Path, default=PROTOS, help="the folder of the published .proto files")
    arguments = parser.parse_args()
    connection.check(parser, arguments)

    rng = random.Random(arguments.seed)
    opponent = read_column if arguments.opponent == "me" else lambda board: rng.choice(columns(board))
    server = Server(arguments)
    try:
        ending = play(server, opponent)
    finally:
        server.close()
    print(f"\n{ending}")


if __name__ == "__main__":
    main()
