use std::ops::Range;

use training::{Boards, Entry, Examples, Layout, ModelLayers, Recompute};
use weights::Architecture;

use crate::graph::Graph;
use crate::{Path, alphazero, latent};

/// A network of any model and its graph on each board.
#[derive(Debug)]
pub(super) struct Model {
    boards: Boards,
    /// Those of every board: no tensor of a network with several depends on it.
    layers: ModelLayers,
    layout: Layout,
    path: Path,
    recompute: Recompute,
    /// The places of weights that multiply in float32, whatever the path.
    float32_places: Vec<Range<usize>>,
    /// Of each board the graph for the steps of its newest batch, and their number.
    graphs: Vec<Option<(usize, Graph)>>,
}

impl Model {
    /// The network of `layers`.
    pub(super) fn new(architecture: &Architecture, layers: ModelLayers, path: Path, recompute: Recompute) -> Self {
        let (boards, layout) = (Boards::new(architecture.clone()), layers.layout());
        Self { boards, layout, layers, path, recompute, float32_places: Vec::new(), graphs: vec![None] }
    }

    /// Adds a board, see [`Boards::add`].
    pub(super) fn add_board(&mut self, architecture: &Architecture) -> Result<usize, training::Error> {
        let board = self.boards.add(architecture)?;
        self.graphs.push(None);
        Ok(board)
    }

    /// The number of boards.
    pub(super) fn boards(&self) -> usize {
        self.graphs.len()
    }

    /// Has the weights of these layers, and of no others, multiply in float32.
    pub(super) fn multiply_in_float32<'a>(&mut self, layers: impl Iterator<Item = &'a String>) {
        let layers: Vec<&String> = layers.collect();
        let weights = self.layout.parameters.iter().filter(|entry| entry.tensor.role.is_weight());
        let chosen = weights.filter(|entry| layers.iter().any(|layer| *layer == entry.tensor.layer()));
        self.float32_places = chosen.map(Entry::range).collect();
        self.graphs.fill_with(|| None);
    }

    /// Its architecture on its own board.
    pub(super) fn architecture(&self) -> &Architecture {
        self.boards.network()
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
                batch.positions(self.boards.get(batch.board)?)
            }
            Examples::Unrolled(batch) => {
                self.layers.muzero()?;
                let positions = batch.positions(self.architecture())?;
                let needs_next = self.layers.consistency().is_some() || self.architecture().model.codes() > 0;
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
        let steps = match examples {
            Examples::Positions(_) => 0,
            Examples::Unrolled(batch) => batch.unroll_steps,
        };
        self.unrolled(examples.board(), steps)
    }

    /// The graph for a board and a number of steps: the one there is, unless its number differs.
    pub(super) fn unrolled(&mut self, board: usize, steps: usize) -> &mut Graph {
        let graph = match self.graphs[board].take() {
            Some((of, graph)) if of == steps => graph,
            _ => self.built(board, steps),
        };
        &mut self.graphs[board].insert((steps, graph)).1
    }

    fn built(&self, board: usize, steps: usize) -> Graph {
        let &Self { ref layers, ref layout, path, recompute, .. } = self;
        let architecture = self.boards.get(board).expect("every board has a place for its graph");
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
