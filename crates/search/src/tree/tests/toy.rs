//! Test games: small random trees with dyadic values, so that sums are exact in any order.

use game::{Action, mix};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::{Expansion, Exploration, Request, Selection, Settings, Tree};

/// The order of turns and the rewards of a toy game.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Turns {
    /// Players alternate and only the final result counts.
    Alternating,
    /// After some moves the same player moves again, and some moves pay a reward.
    Mixed,
}

/// A position of a random game; the hash determines the whole subtree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Toy {
    pub(crate) hash: u64,
    pub(crate) plies_left: u32,
    pub(crate) turns: Turns,
}

/// The result of an action.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) toy: Toy,
    pub(crate) reward: f32,
    pub(crate) discount: f32,
}

impl Toy {
    pub(crate) fn new(seed: u64, plies_left: u32, turns: Turns) -> Self {
        Self { hash: mix(seed), plies_left, turns }
    }

    fn draw(&self, salt: u64, below: u64) -> u64 {
        mix(self.hash ^ mix(salt)) % below
    }

    /// Returns the result for the player to move, or `None` if the game is not over.
    pub(crate) fn outcome(&self) -> Option<f32> {
        let over = self.plies_left == 0 || self.draw(1, 8) == 0;
        over.then(|| self.draw(2, 3) as f32 - 1.0)
    }

    pub(crate) fn actions(&self) -> Vec<Action> {
        (0..1 + self.draw(3, 4) as u16).map(|action| Action(action * 2 + 1)).collect()
    }

    pub(crate) fn priors(&self) -> Vec<f32> {
        let len = self.actions().len();
        let mut shares = vec![1_u64; len];
        for unit in 0..(256 - len as u64) {
            shares[self.draw(100 + unit / 16, len as u64) as usize] += 1;
        }
        shares.iter().map(|&share| share as f32 / 256.0).collect()
    }

    pub(crate) fn value(&self) -> f32 {
        (self.draw(4, 127) as f32 - 63.0) / 64.0
    }

    pub(crate) fn step(&self, action: Action) -> Step {
        let hash = mix(self.hash ^ mix(1000 + u64::from(action.0)));
        let toy = Self { hash, plies_left: self.plies_left - 1, turns: self.turns };
        match self.turns {
            Turns::Alternating => Step { toy, reward: 0.0, discount: -1.0 },
            Turns::Mixed => Step {
                toy,
                reward: toy.draw(5, 3).saturating_sub(1) as f32 / 4.0,
                discount: if toy.draw(6, 3) == 0 { 1.0 } else { -1.0 },
            },
        }
    }

    /// Calls `then` with the expansion of the position.
    pub(crate) fn expansion<R>(&self, then: impl FnOnce(Expansion<'_>) -> R) -> R {
        match self.outcome() {
            Some(value) => then(Expansion::Terminal { value }),
            None => {
                then(Expansion::Evaluated { actions: &self.actions(), priors: &self.priors(), value: self.value() })
            }
        }
    }

    /// Creates a tree with this position as the root; the position must not be terminal.
    pub(crate) fn tree(self, settings: &Settings) -> Tree<Self> {
        let mut tree = Tree::new(settings.clone());
        self.expansion(|expansion| tree.reset(self, expansion));
        tree
    }
}

/// Returns the first `count` random games that are not over at the start.
pub(crate) fn games(count: usize, plies: u32, turns: Turns) -> impl Iterator<Item = Toy> {
    (0..).map(move |seed| Toy::new(seed, plies, turns)).filter(|toy| toy.outcome().is_none()).take(count)
}

/// Starts a search and runs it until finished, with up to `leaves` requests in flight.
pub(crate) fn search(tree: &mut Tree<Toy>, simulations: u32, exploration: Exploration, leaves: usize) {
    tree.begin(simulations, exploration, &mut ChaCha8Rng::seed_from_u64(7));
    run(tree, leaves);
}

/// Continues a search until finished, with up to `leaves` requests in flight.
pub(crate) fn run(tree: &mut Tree<Toy>, leaves: usize) {
    run_with(tree, leaves, |tree, request| {
        let step = tree.parent_state(&request).step(request.action);
        step.toy.expansion(|expansion| tree.answer(request, step.toy, step.reward, step.discount, expansion));
    });
}

/// Continues the search of any tree until finished, with up to `leaves` requests in flight, each passed to `answer`.
pub(crate) fn run_with<S>(tree: &mut Tree<S>, leaves: usize, answer: impl Fn(&mut Tree<S>, Request)) {
    while !tree.is_finished() {
        let mut requests = Vec::new();
        let mut completed = 0;
        while requests.len() < leaves {
            match tree.select() {
                Selection::Leaf(request) => requests.push(request),
                Selection::Completed => completed += 1,
                Selection::Busy => break,
            }
        }
        assert!(completed > 0 || !requests.is_empty(), "an unfinished search makes progress");
        requests.into_iter().for_each(|request| answer(tree, request));
    }
}

/// A random number generator that panics when used.
pub(crate) struct Silent;

impl rand::rand_core::TryRng for Silent {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        panic!("nothing may be drawn here")
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        panic!("nothing may be drawn here")
    }

    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
        panic!("nothing may be drawn here")
    }
}
