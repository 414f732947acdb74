"""Plays Connect Four against an inference server, with nothing but grpcio and the published .proto files.

    python play.py 127.0.0.1:7003                       you begin, the server answers
    python play.py 127.0.0.1:7003 --opponent random     somebody who plays at random begins
"""

import argparse
import pathlib
import random
import sys

import grpc

from connect_four import COLUMNS, Board

PROTOS = pathlib.Path(__file__).resolve().parents[2] / "proto" / "proto"


class Server:
    """A player that searches elsewhere."""

    def __init__(self, address, simulations, protos):
        # grpcio compiles .proto files that it finds on the path of modules.
        sys.path.append(str(protos))
        self.messages, services = grpc.protos_and_services("zerofleet/inference/v1/inference.proto")
        self.channel = grpc.insecure_channel(address)
        self.service = services.InferenceStub(self.channel)
        self.simulations = simulations

    def choose(self, board):
        """The column to play, and what the search saw."""
        moves = self.messages.NotationList(moves=list(board.moves))
        position = self.messages.Position(game="connect_four", notation=moves)
        request = self.messages.SelectMoveRequest(position=position, simulations=self.simulations)
        response = self.service.SelectMove(request, timeout=60)
        return int(response.move) - 1, response.analysis

    def close(self):
        self.channel.close()


def columns(board):
    """The columns that have room, from 0."""
    return [column for column in range(COLUMNS) if board.legal()[column]]


def ask_person(board):
    """A legal column from the terminal."""
    while True:
        text = input("your column: ").strip()
        if text in [str(column + 1) for column in columns(board)]:
            return int(text) - 1
        print(f"{text!r} cannot be played here")


def play(server, opponent):
    """One game, which the opponent begins. How it ended, in words."""
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
    parser.add_argument("server", help="where the inference server listens: 127.0.0.1:7003")
    parser.add_argument("--opponent", choices=["me", "random"], default="me")
    parser.add_argument("--simulations", type=int, default=200, help="of each of the server's moves")
    parser.add_argument("--seed", type=int, help="of the random opponent")
    parser.add_argument("--protos", type=pathlib.Path, default=PROTOS, help="the folder of the published .proto files")
    arguments = parser.parse_args()

    chance = random.Random(arguments.seed)
    opponent = ask_person if arguments.opponent == "me" else lambda board: chance.choice(columns(board))
    server = Server(arguments.server, arguments.simulations, arguments.protos)
    try:
        ending = play(server, opponent)
    finally:
        server.close()
    print(f"\n{ending}")


if __name__ == "__main__":
    main()
