//! Checks that self-play rounds without a move allocate no memory once the buffers have grown.
//!
//! No other test may run in this process, because the allocator counts the allocations of all threads.

#[path = "../../search/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use game::{Game, ObservationShape, mix};
use games::ConnectFour;
use inference::{Attributes, Batch, Error, Evaluator, LatentModel, LatentPredictions, Predictions, Slot, Unroll, Wdl};
use selfplay::{Episodes, LatentEpisodes, Round, SearchAlgorithm, SearchSettings, Settings};

/// An evaluator with uniform priors, and values that depend on the stones.
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

/// A learned model with a hash of the action sequence as the latent state.
struct Hashes {
    attributes: Attributes,
    pool: Vec<u64>,
    logits: Vec<f32>,
}

impl Hashes {
    fn push(&mut self, to: Slot, state: u64, predictions: &mut LatentPredictions) {
        self.pool[to.0 as usize] = state;
        assert!(predictions.push_logits(&self.logits, None, (state % 64) as f32 / 64.0, 0.0));
    }
}

impl LatentModel for Hashes {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn reserve(&mut self, slots: usize) -> Result<(), Error> {
        self.pool.resize(slots, 0);
        Ok(())
    }

    fn initial(&mut self, _: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error> {
        predictions.clear(self.logits.len());
        to.iter().for_each(|&to| self.push(to, u64::from(to.0), predictions));
        Ok(())
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        predictions.clear(self.logits.len());
        for step in steps {
            let state = mix(self.pool[step.from.0 as usize] ^ mix(u64::from(step.action.0)));
            self.push(step.to, state, predictions);
        }
        Ok(())
    }
}

/// Runs rounds until buffers have grown, then counts the allocations of rounds without a move.
fn check(mut advance: impl FnMut() -> Round) {
    let mut round = |counted: bool| {
        let before = allocations();
        let round = advance();
        let allocations = allocations() - before;
        let quiet = round.batch > 0 && round.moves == 0;
        assert!(!(counted && quiet) || allocations == 0, "{allocations} allocations in {round:?}");
        quiet
    };
    for _ in 0..20_000 {
        round(false);
    }
    let quiet = (0..2000).filter(|_| round(true)).count();
    assert!(quiet > 500, "only {quiet} of 2000 batches are without a move");
}

#[test]
fn a_batch_without_a_move_allocates_nothing() {
    let game = ConnectFour::new();
    let mut evaluator = Stones::new(game.spec().observation);
    let settings = Settings { games: 16, full_simulations: 64, full_search_probability: 1.0, ..Settings::default() };
    let mut episodes = Episodes::new(game.clone(), settings.clone(), 1.0, 1);
    check(|| {
        let round = episodes.advance(&mut evaluator, None).unwrap();
        episodes.drain_finished().for_each(drop);
        round
    });

    let attributes = evaluator.attributes();
    for algorithm in [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL_NORMALISED] {
        let search = SearchSettings { algorithm, ..SearchSettings::default() };
        let settings = Settings { games: 4, full_simulations: 16, search, ..settings.clone() };
        let mut episodes = LatentEpisodes::new(game.clone(), settings, 1.0, 1);
        let mut model =
            Hashes { attributes: attributes.clone(), pool: Vec::new(), logits: vec![0.0; game.spec().actions] };
        check(|| {
            let round = episodes.advance(&mut model).unwrap();
            episodes.drain_finished().for_each(drop);
            round
        });
    }
}
