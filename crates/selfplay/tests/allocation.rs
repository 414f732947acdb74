//! Self-play allocates nothing from batch to batch, once its buffers have grown.
//!
//! This test is alone in its process because the allocator counts for all threads.

#[path = "../../search/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use game::{Game, ObservationShape};
use games::ConnectFour;
use inference::{Attributes, Batch, Error, Evaluator, Predictions, Wdl};
use selfplay::{Episodes, Settings};

/// A leaf evaluator with even priors, and values that depend on the stones.
struct Stones {
    attributes: Attributes,
    priors: Vec<f32>,
}

impl Stones {
    fn new(shape: ObservationShape) -> Self {
        let attributes = Attributes { name: "stones".into(), weights_version: 1, preferred_batch: 64, max_batch: 1024 };
        Self { attributes, priors: Vec::with_capacity(shape.len()) }
    }
}

impl Evaluator for Stones {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        predictions.clear();
        for i in 0..batch.len() {
            let legal = batch.legal(i).len();
            self.priors.clear();
            self.priors.resize(legal, 1.0 / legal as f32);
            let weighed = batch.observation(i).iter().zip(1_u32..).map(|(&stone, cell)| stone * (cell * 7 % 11) as f32);
            let win = weighed.sum::<f32>() % 8.0 / 8.0;
            predictions.push(&self.priors, Wdl { win, draw: 0.0, loss: 1.0 - win });
        }
        Ok(())
    }
}

#[test]
fn a_batch_without_a_move_allocates_nothing() {
    let game = ConnectFour::new();
    let mut evaluator = Stones::new(game.spec().observation);
    let settings = Settings { games: 16, full_simulations: 64, full_search_probability: 1.0, ..Settings::default() };
    let mut episodes = Episodes::new(game, settings, 1);
    let mut round = |counted: bool| {
        let before = allocations();
        let round = episodes.advance(&mut evaluator, None).unwrap();
        let allocations = allocations() - before;
        episodes.drain_finished().for_each(drop);
        let quiet = round.batch > 0 && round.moves == 0;
        assert!(!(counted && quiet) || allocations == 0, "{allocations} allocations in {round:?}");
        quiet
    };
    for _ in 0..20_000 {
        round(false);
    }
    let quiet = (0..2000).filter(|_| round(true)).count();
    assert!(quiet > 500, "moves in nearly every batch: {quiet} of 2000 are without");
}
