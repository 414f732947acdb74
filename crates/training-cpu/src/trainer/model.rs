use std::ops::Range;

use training::{Entry, Examples, Layout, ModelLayers, Recompute};
use weights::Architecture;

use crate::graph::Graph;
use crate::{Path, alphazero, latent};

/// A network of any model and its graph.
#[derive(Debug)]
pub(super) struct Model {
    architecture: Architecture,
    layers: ModelLayers,
    layout: Layout,
    path: Path,
    recompute: Recompute,
    /// The places of weights that multiply in float32, whatever the path.
    float32_places: Vec<Range<usize>>,
    /// The graph for the steps of the newest batch, and their number.
    graph: Option<(usize, Graph)>,
}

impl Model {
    /// The network of `layers`.
    pub(super) fn new(architecture: &Architecture, layers: ModelLayers, path: Path, recompute: Recompute) -> Self {
        let (architecture, layout) = (architecture.clone(), layers.layout());
        Self { architecture, layout, layers, path, recompute, float32_places: Vec::new(), graph: None }
    }

    /// Has the weights of these layers, and of no others, multiply in float32.
    pub(super) fn multiply_in_float32<'a>(&mut self, layers: impl Iterator<Item = &'a String>) {
        let layers: Vec<&String> = layers.collect();
        let weights = self.layout.parameters.iter().filter(|entry| entry.tensor.role.is_weight());
        let chosen = weights.filter(|entry| layers.iter().any(|layer| *layer == entry.tensor.layer()));
        self.float32_places = chosen.map(Entry::range).collect();
        self.graph = None;
    }

    /// Its architecture.
    pub(super) fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// The places of its tensors.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the number of positions after checking every field of a batch.
    pub(super) fn positions(&self, examples: &Examples) -> Result<usize, training::Error> {
        match examples {
            Examples::Positions(batch) => {
                self.layers.alphazero()?;
                batch.positions(&self.architecture)
            }
            Examples::Unrolled(batch) => {
                self.layers.muzero()?;
                let positions = batch.positions(&self.architecture)?;
                let needs_next = self.layers.consistency().is_some() || self.architecture.model.codes() > 0;
                if needs_next && !batch.has_next_observations() {
                    let expected = batch.observations.len() * batch.unroll_steps;
                    return Err(training::Error::Batch { field: "next_observations", expected, got: 0 });
                }
                Ok(positions)
            }
        }
    }

    /// The graph for examples, which were checked.
    pub(super) fn graph(&mut self, examples: &Examples) -> &mut Graph {
        self.unrolled(match examples {
            Examples::Positions(_) => 0,
            Examples::Unrolled(batch) => batch.unroll_steps,
        })
    }

    /// The graph for a number of steps: the one there is, unless its number differs.
    pub(super) fn unrolled(&mut self, steps: usize) -> &mut Graph {
        let graph = match self.graph.take() {
            Some((of, graph)) if of == steps => graph,
            _ => self.built(steps),
        };
        &mut self.graph.insert((steps, graph)).1
    }

    fn built(&self, steps: usize) -> Graph {
        let &Self { ref architecture, ref layers, ref layout, path, recompute, .. } = self;
        let mut graph = match layers {
            ModelLayers::Alphazero(layers) => alphazero::graph(architecture, layers, layout, path, recompute),
            ModelLayers::Muzero { latent: layers, consistency } => {
                latent::unrolled(architecture, layers, consistency.as_ref(), layout, steps, path, recompute)
            }
        };
        graph.multiply_in_float32(&self.float32_places);
        graph
    }
}
