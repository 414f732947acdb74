//! MuZero networks: dense networks for vectors, by products over rows of many states (`dense`), and residual networks
//! for planes, with the trunk of towers (`residual`). Start with [`LatentEvaluator`].

mod answers;
mod dense;
mod evaluator;
pub(crate) mod folded;
mod network;
mod pool;
pub(crate) mod reference;
mod residual;
pub(crate) mod rows;
mod self_check;

pub use evaluator::LatentEvaluator;
pub use network::LatentNetwork;
pub(crate) use self_check::self_check;

#[cfg(test)]
mod tests;
