//! The network: towers, heads, losses, optimisers, devices, the libtorch evaluator.
