"""Evaluates a batch of Connect Four positions with NVIDIA's client for Triton.

    python evaluate_batch.py 127.0.0.1:7003 4 44 445 1212
    python evaluate_batch.py localhost:7003 --ca ca.pem --cert client.pem --key client.key --token token 4 44
"""

import argparse

import numpy as np
import tritonclient.grpc as triton

import connection
from connect_four import Board

MODEL = "connect_four"


def evaluate(client, boards, headers):
    """Returns the weights version, priors `[B, 7]`, and win/draw/loss `[B, 3]` for the player to move."""
    observations = np.stack([board.observation() for board in boards])
    legal = np.stack([board.legal() for board in boards])
    inputs = [
        triton.InferInput("observations", observations.shape, "FP32").set_data_from_numpy(observations),
        triton.InferInput("legal", legal.shape, "BOOL").set_data_from_numpy(legal),
    ]
    result = client.infer(MODEL, inputs, headers=headers)
    return result.get_response().model_version, result.as_numpy("priors"), result.as_numpy("wdl")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    connection.add_options(parser)
    parser.add_argument("moves", nargs="*", default=["", "4", "44"], help="positions, each as the columns played so far")
    # Positions may follow the options of the connection.
    arguments = parser.parse_intermixed_args()
    connection.check(parser, arguments)
    boards = [Board(moves) for moves in arguments.moves]
    over = [board.moves for board in boards if board.is_over()]
    if over:
        parser.error(f"the game is over after {', '.join(over)}")

    with connection.triton_client(arguments) as client:
        version, priors, wdl = evaluate(client, boards, connection.headers(arguments))
    print(f"weights version {version}")
    print("    win   draw   loss   best  prior  position")
    for board, row, (win, draw, loss) in zip(boards, priors, wdl):
        best = row.argmax()
        print(f"{win:7.3f}{draw:7.3f}{loss:7.3f}{best + 1:7}{row[best]:7.3f}  {board.moves or 'the empty board'}")


if __name__ == "__main__":
    main()
