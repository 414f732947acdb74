"""Trains Connect Four with a learner in PyTorch: the fleet plays and stores games, this program trains the network.

    python own_learner.py

The actors play with the latest published weights. Needs PyTorch.
"""

import argparse

import torch

import zerofleet as zf
import zerofleet.torch


def main() -> None:
    """Starts the run, trains until the games end, and publishes every `--publish-steps` steps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--game", default="connect_four")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--publish-steps", type=int, default=100)
    arguments = parser.parse_args()

    run = zf.train(arguments.game, learner="own", minutes=arguments.minutes, wait=False)
    weights = zf.serve_weights(run)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = zf.torch.AlphaZeroNet(weights.architecture).to(device)
    optimiser = torch.optim.AdamW(net.parameters(), lr=arguments.learning_rate, weight_decay=0.01)
    # Published weights are an average, which plays better than the weights of one step.
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99), use_buffers=True
    )
    # The actors play with these until the first hundred steps are done.
    weights.publish(net.state_dict(), 0)

    with zf.Replay(run, batch=arguments.batch) as batches:
        for step, batch in enumerate(batches, start=1):
            output = net(torch.from_numpy(batch.observations).to(device))
            loss = zf.torch.alphazero_loss(output, batch)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimiser.step()
            average.update_parameters(net)
            if step % arguments.publish_steps == 0 and run.is_running:
                version = weights.publish(average.module.state_dict(), step)
                print(f"step {step}: loss {loss.item():.3f}, published version {version}", flush=True)
    # Raises the error of a fleet that has failed.
    run.wait()


if __name__ == "__main__":
    main()
