use std::ops::Range;

use training::{Examples, Layout, ModelLayers, TrainerSettings};
use weights::Architecture;

use crate::graph::Graph;
use crate::latent;
use crate::losses::{LossWeights, Sums, Targets, UnrolledTargets};
use crate::threads::Threads;
use crate::tower::{Changes, MicroBatch, Tower, Workshop};
use crate::{Error, Path};

/// The network of either kind.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a trainer has one")]
pub(super) enum Model {
    /// Of priors and values.
    Alphazero(Tower),
    /// Of latent states.
    Latent(Latent),
}

/// A network of latent states.
#[derive(Debug)]
pub(super) struct Latent {
    layers: ModelLayers,
    layout: Layout,
    path: Path,
    /// The graph of the newest batch, and its number of steps.
    graph: Option<(usize, Graph)>,
}

/// The targets of a whole batch.
#[derive(Debug)]
pub(super) enum BatchTargets<'a> {
    /// Of positions.
    Positions(Targets<'a>),
    /// Of positions and the steps after them.
    Unrolled(UnrolledTargets<'a>),
}

impl Model {
    /// The network of `layers`.
    pub(super) fn new(architecture: &Architecture, layers: &ModelLayers, layout: &Layout, path: Path) -> Self {
        match layers {
            ModelLayers::Alphazero(layers) => Self::Alphazero(Tower::new(architecture, layers, layout, path)),
            ModelLayers::Muzero { .. } => {
                Self::Latent(Latent { layers: layers.clone(), layout: layout.clone(), path, graph: None })
            }
        }
    }

    /// Returns the number of positions after checking every field of a batch.
    pub(super) fn positions(&self, architecture: &Architecture, examples: &Examples) -> Result<usize, training::Error> {
        match (self, examples) {
            (Self::Alphazero(_), Examples::Positions(batch)) => batch.positions(architecture),
            (Self::Latent(latent), Examples::Unrolled(batch)) => {
                let positions = batch.positions(architecture)?;
                let needs_next = latent.layers.consistency().is_some() || architecture.model.codes() > 0;
                if needs_next && !batch.has_next_observations() {
                    let expected = batch.observations.len() * batch.unroll_steps;
                    return Err(training::Error::Batch { field: "next_observations", expected, got: 0 });
                }
                Ok(positions)
            }
            (Self::Alphazero(_), Examples::Unrolled(_)) => Err(network::Error::Model { expected: "muzero" }.into()),
            (Self::Latent(_), Examples::Positions(_)) => Err(network::Error::Model { expected: "alphazero" }.into()),
        }
    }

    /// Packs the parameters `[P]` for a step with these examples, which were checked.
    pub(super) fn prepare(
        &mut self,
        architecture: &Architecture,
        examples: &Examples,
        parameters: &[f32],
        threads: &mut Threads,
    ) -> Result<(), Error> {
        match (self, examples) {
            (Self::Alphazero(tower), _) => tower.pack(parameters, threads),
            (Self::Latent(latent), Examples::Unrolled(batch)) => {
                latent.graph(architecture, batch.unroll_steps)?.pack(parameters, threads);
            }
            (Self::Latent(_), Examples::Positions(_)) => unreachable!("the examples were checked"),
        }
        Ok(())
    }

    /// Runs rows of a batch forward and back with the parameters `[P]` that were packed.
    pub(super) fn pass(
        &self,
        workshop: &mut Workshop,
        parameters: &[f32],
        targets: &BatchTargets<'_>,
        rows: Range<usize>,
        changes: &mut Changes<'_>,
        forward_ended: &mut dyn FnMut(),
    ) -> Sums {
        match (self, targets) {
            (Self::Alphazero(tower), BatchTargets::Positions(targets)) => {
                let batch = MicroBatch { targets: *targets, rows };
                tower.pass(workshop, parameters, &batch, changes, forward_ended)
            }
            (Self::Latent(Latent { graph: Some((_, graph)), .. }), BatchTargets::Unrolled(targets)) => {
                graph.pass(workshop, parameters, targets, rows, changes, forward_ended)
            }
            _ => unreachable!("the examples were checked"),
        }
    }
}

impl Latent {
    /// The graph for this number of steps, which is that of the newest batch unless its length changed.
    fn graph(&mut self, architecture: &Architecture, steps: usize) -> Result<&mut Graph, Error> {
        if self.graph.as_ref().is_none_or(|(of, _)| *of != steps) {
            let layers = self.layers.muzero().map_err(Error::from)?;
            let consistency = self.layers.consistency();
            let graph = latent::unrolled(architecture, layers, consistency, &self.layout, steps, self.path);
            self.graph = Some((steps, graph));
        }
        let (_, graph) = self.graph.as_mut().expect("it was built");
        Ok(graph)
    }
}

impl<'a> BatchTargets<'a> {
    /// The targets of examples, which were checked.
    pub(super) fn new(architecture: &Architecture, examples: &'a Examples, settings: &TrainerSettings) -> Self {
        match examples {
            Examples::Positions(batch) => Self::Positions(Targets::new(batch, settings.value_loss_weight)),
            Examples::Unrolled(batch) => {
                Self::Unrolled(UnrolledTargets::new(architecture, batch, LossWeights::of(settings)))
            }
        }
    }
}
