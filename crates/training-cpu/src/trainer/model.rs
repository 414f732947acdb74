use std::ops::Range;

use training::{Boards, Entry, Examples, Layout, ModelLayers, Recompute};
use weights::Architecture;

use crate::graph::Graph;
use crate::{Path, alphazero, latent};

/// A network of any model, with a graph for each board.
#[derive(Debug)]
pub(super) struct Model {
    boards: Boards,
    /// Layers of every board: in a network with several boards no tensor depends on the board.
    layers: ModelLayers,
    layout: Layout,
    path: Path,
    recompute: Recompute,
    /// Ranges of weights with float32 products, whatever the path.
    float32_places: Vec<Range<usize>>,
    /// Graph and number of unroll steps of the latest batch on each board.
    graphs: Vec<Option<(usize, Graph)>>,
}

impl Model {
    /// Creates the network of `layers`.
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

    /// Returns the number of boards.
    pub(super) fn boards(&self) -> usize {
        self.graphs.len()
    }

    /// Switches the weights of exactly these layers to float32 products.
    pub(super) fn multiply_in_float32<'a>(&mut self, layers: impl Iterator<Item = &'a String>) {
        let layers: Vec<&String> = layers.collect();
        let weights = self.layout.parameters.iter().filter(|entry| entry.tensor.role.is_weight());
        let chosen = weights.filter(|entry| layers.iter().any(|layer| *layer == entry.tensor.layer()));
        self.float32_places = chosen.map(Entry::range).collect();
        self.graphs.fill_with(|| None);
    }

    /// Returns the architecture on board 0.
    pub(super) fn architecture(&self) -> &Architecture {
        self.boards.network()
    }

    /// Returns the places of all tensors.
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

    /// Returns the graph for checked examples.
    pub(super) fn graph(&mut self, examples: &Examples) -> &mut Graph {
        let steps = match examples {
            Examples::Positions(_) => 0,
            Examples::Unrolled(batch) => batch.unroll_steps,
        };
        self.unrolled(examples.board(), steps)
    }

    /// Returns the graph for a board and a number of steps, rebuilt if the number has changed.
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
