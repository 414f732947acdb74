//! Initial and recurrent inference of MuZero networks.

use game::Action;
use inference::{Batch, LatentModel, LatentPredictions, Slot, Unroll};
use weights::{Architecture, Model};

use crate::network::{NetworkSize, random_positions};
use crate::series::Work;
use crate::threads;

/// Planes of every observation.
const PLANES: usize = 4;
const ACTIONS: usize = 6;
/// Values and rewards are categorical over the integers from −20 to 20, after the value transform.
const SUPPORT: usize = 20;
/// Nodes per tree; a batch of size N evaluates one node in each of N trees. With few nodes, all latent states fit the
/// memory.
const NODES: u32 = 8;

/// A call of a learned model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inference {
    /// From observations to latent states.
    Initial,
    /// From latent states and actions to the next latent states.
    Recurrent,
}

/// Returns the MuZero network of this size; a board of one cell makes it dense.
pub(super) fn architecture(size: NetworkSize) -> Architecture {
    let model = Model::Muzero { support: SUPPORT };
    Architecture { planes: PLANES, actions: ACTIONS, model, ..size.architecture() }
}

/// Returns the work of models in parallel, each with separate trees. libtorch distributes each operation over `threads`
/// threads. Models are built for each measurement, so that memory holds the latent states of one size.
pub(super) fn unrolling(
    build: impl Fn() -> anyhow::Result<Box<dyn LatentModel>> + 'static,
    inference: Inference,
    architecture: Architecture,
    (models, threads): (usize, usize),
    seed: u64,
) -> Work {
    Work::of_size(move |size, time| {
        network_torch::set_threads(threads);
        let worker = |model| Worker::new(build()?, &architecture, size, seed.wrapping_add(model));
        let mut workers = (0..models as u64).map(worker).collect::<anyhow::Result<Vec<_>>>()?;
        threads::rate(&mut workers, time, |worker| worker.call(inference).map(|()| 1))
    })
}

/// A model with the inputs of a batch.
struct Worker {
    model: Box<dyn LatentModel>,
    observations: Batch,
    roots: Vec<Slot>,
    node: u32,
    predictions: LatentPredictions,
}

impl Worker {
    /// Makes the observations of a batch, and the roots from which steps start.
    fn new(
        mut model: Box<dyn LatentModel>,
        architecture: &Architecture,
        batch: usize,
        seed: u64,
    ) -> anyhow::Result<Self> {
        model.reserve(batch * NODES as usize)?;
        let observations = random_positions(architecture, seed, batch);
        let roots = (0..batch).map(|tree| slot(tree, 0)).collect();
        let mut worker = Self { model, observations, roots, node: 0, predictions: LatentPredictions::default() };
        worker.call(Inference::Initial)?;
        Ok(worker)
    }

    /// Evaluates the observations, or steps every tree from its latest node to the next.
    fn call(&mut self, inference: Inference) -> anyhow::Result<()> {
        let Self { model, observations, roots, node, predictions } = self;
        if inference == Inference::Initial {
            return Ok(model.initial(observations, roots, predictions)?);
        }
        let step = |tree| {
            let (from, to) = (slot(tree, *node), slot(tree, *node + 1));
            Unroll { from, action: Action((tree % ACTIONS) as u16), to }
        };
        model.recurrent(&(0..roots.len()).map(step).collect::<Vec<_>>(), predictions)?;
        *node = (*node + 1) % (NODES - 1);
        Ok(())
    }
}

fn slot(tree: usize, node: u32) -> Slot {
    Slot(tree as u32 * NODES + node)
}
