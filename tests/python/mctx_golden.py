"""Writes the searches of mctx that crates/search compares its own with.

    pip install mctx==0.0.71 jax==0.10.2
    python mctx_golden.py > ../../crates/search/tests/mctx_golden.txt

The models are tables: a state and an action give a reward and the next state, and each state has logits and a value.
The searches are those of `gumbel_muzero_policy` with its default constants, computed in float64. mctx gives invalid actions
of the root the mixed value too, which may widen the range that values are rescaled by; the weights written here are those of
a range of valid actions, and the visits are those of both.

A line is a word and numbers. `model S A` begins a model; `state` holds the A logits, the value, the A rewards and the A
next states of one state. `search` holds the simulations, the discount and the root of one search; the lines below it hold
one number for each action: `valid`, `gumbel`, `visits`, `values` (0 if unvisited), `weights`; then `result` holds the chosen
action and the mean value of the root.
"""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import mctx
import numpy as np

MODELS = [(5, 2), (12, 3), (30, 7), (60, 18)]
SIMULATIONS = [4, 16, 32, 50]
DISCOUNTS = [0.997, 1.0, -1.0]


def tables(seed, states, actions):
    """A model whose numbers have three decimals; values and rewards are far from [0, 1]."""
    random = np.random.default_rng(seed)
    return {
        "logits": random.normal(0, 1.5, (states, actions)).round(3),
        "values": random.normal(5, 10, states).round(3),
        "rewards": random.normal(0, 3, (states, actions)).round(3),
        "next": random.integers(0, states, (states, actions)),
    }


def step(params, _, action, state):
    """The recurrent function of mctx. An embedding is a state and the discount of its search."""
    state, discount = state[:, 0].astype(jnp.int32), state[:, 1]
    following = params["next"][state, action]
    output = mctx.RecurrentFnOutput(
        reward=params["rewards"][state, action],
        discount=discount,
        prior_logits=params["logits"][following],
        value=params["values"][following],
    )
    return output, jnp.stack([following.astype(discount.dtype), discount], axis=1)


def transform_of_valid(tree, node):
    """The transform of mctx, without invalid actions in the range."""
    scaled = mctx.qtransform_completed_by_mix_value(tree, node)
    values = mctx.qtransform_completed_by_mix_value(tree, node, rescale_values=False)
    valid = ~(tree.root_invalid_actions.astype(bool) & (node == tree.ROOT_INDEX))
    least = jnp.min(jnp.where(valid, values, jnp.inf))
    greatest = jnp.max(jnp.where(valid, values, -jnp.inf))
    factor = 0.1 * (50.0 + jnp.max(tree.children_visits[node]))
    rescaled = factor * (values - least) / jnp.maximum(greatest - least, factor * 1e-8)
    return jnp.where(jnp.all(valid), scaled, rescaled)


def numbers(word, values):
    print(word, *(f"{value:.9g}" for value in np.asarray(values).ravel()))


def main():
    for seed, (states, actions) in enumerate(MODELS):
        model = {name: jnp.asarray(table) for name, table in tables(seed, states, actions).items()}
        numbers("model", [states, actions])
        for row in range(states):
            numbers("state", np.concatenate([np.atleast_1d(model[name][row]) for name in model]))
        for simulations in SIMULATIONS:
            random = np.random.default_rng(100 * seed + simulations)
            # Each discount without and with invalid actions, without and with noise.
            discounts = jnp.asarray(np.repeat(DISCOUNTS, 4))
            roots = jnp.asarray(random.integers(0, states, len(discounts)))
            invalid = random.random((len(discounts), actions)) < 0.4
            invalid[::2] = False
            invalid[np.arange(len(discounts)), random.integers(0, actions, len(discounts))] = False
            scale = jnp.asarray(np.tile([0.0, 0.0, 1.0, 1.0], 3))[:, None]
            root = mctx.RootFnOutput(
                prior_logits=model["logits"][roots],
                value=model["values"][roots],
                embedding=jnp.stack([roots.astype(jnp.float64), discounts], axis=1),
            )
            key = jax.random.PRNGKey(simulations)
            mask = jnp.asarray(invalid, jnp.float64)
            published = mctx.gumbel_muzero_policy(model, key, root, step, simulations, mask, gumbel_scale=scale)
            output = mctx.gumbel_muzero_policy(
                model, key, root, step, simulations, mask, gumbel_scale=scale, qtransform=transform_of_valid
            )
            summary = output.search_tree.summary()
            assert (summary.visit_counts == published.search_tree.summary().visit_counts).all()
            gumbel = output.search_tree.extra_data.root_gumbel
            for row in range(len(discounts)):
                numbers("search", [simulations, discounts[row], roots[row]])
                numbers("valid", 1 - invalid[row])
                numbers("gumbel", gumbel[row])
                numbers("visits", summary.visit_counts[row])
                numbers("values", jnp.where(summary.visit_counts[row] > 0, summary.qvalues[row], 0))
                numbers("weights", output.action_weights[row])
                numbers("result", [output.action[row], summary.value[row]])


if __name__ == "__main__":
    main()
