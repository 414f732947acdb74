use ::search::{Expansion, Exploration, Request, SearchAlgorithm, Selection, Settings, Tree};
use game::{Action, Game};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use selfplay::{Next, Step};

/// Plays games against itself with a constant evaluator.
pub(crate) struct Player<G: Game> {
    game: G,
    algorithm: SearchAlgorithm,
    simulations: u32,
    tree: Tree<G::Position>,
    position: G::Position,
    plies: usize,
    rng: ChaCha8Rng,
    legal: Vec<Action>,
    /// Uniform priors, indexed by the number of legal actions.
    priors: Vec<Vec<f32>>,
    policy: Vec<f32>,
    /// Bytes and nodes of the trees at the end of each search, summed.
    pub(crate) bytes: u64,
    pub(crate) nodes: u64,
}

impl<G: Game> Player<G> {
    pub(crate) fn new(game: G, algorithm: SearchAlgorithm, simulations: u32, seed: u64) -> Self {
        let priors = (0..=game.spec().actions).map(|len| vec![1.0 / len.max(1) as f32; len]).collect();
        Self {
            algorithm,
            simulations,
            tree: Tree::new(Settings { algorithm, ..Settings::default() }),
            position: game.start(),
            plies: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            legal: Vec::new(),
            priors,
            policy: Vec::new(),
            bytes: 0,
            nodes: 0,
            game,
        }
    }

    /// Searches one move, plays it, and returns the number of simulations. Starts a new game after the end of a game.
    pub(crate) fn play_move(&mut self) -> usize {
        self.game.legal_actions(&self.position, &mut self.legal);
        self.tree.reset(self.position.clone(), undecided(&self.legal, &self.priors));
        self.tree.begin(self.simulations, Exploration::Explore, &mut self.rng);
        let mut simulations = 0;
        while !self.tree.is_finished() {
            match self.tree.select() {
                Selection::Leaf(request) => self.answer(request),
                Selection::Completed => {}
                Selection::Busy => unreachable!("a search that is not finished and has nothing in flight goes on"),
            }
            simulations += 1;
        }
        self.bytes += self.tree.bytes() as u64;
        self.nodes += self.tree.node_count() as u64;
        self.conclude();
        simulations
    }

    /// Plays the action of a leaf and answers the request of the tree.
    fn answer(&mut self, request: Request) {
        let mut position = self.tree.parent_state(&request).clone();
        let Step { reward, discount, next } = Step::play(&self.game, &mut position, request.action);
        let expansion = match next {
            Next::Terminal { value } => Expansion::Terminal { value },
            Next::Truncated => Expansion::Terminal { value: 0.0 },
            Next::Action => {
                self.game.legal_actions(&position, &mut self.legal);
                undecided(&self.legal, &self.priors)
            }
        };
        self.tree.answer(request, position, reward, discount, expansion);
    }

    /// Plays the action that the search chose, as self-play does. pUCT samples it with the temperature; with Gumbel,
    /// the noise of the search has already sampled it.
    fn conclude(&mut self) {
        self.tree.search_policy(&mut self.policy);
        let action = match self.algorithm {
            SearchAlgorithm::Puct => {
                self.tree.sample_action(selfplay::Settings::default().temperature.at(self.plies), &mut self.rng)
            }
            SearchAlgorithm::Gumbel { .. } => self.tree.best_action(),
        };
        self.game.play(&mut self.position, action);
        self.plies += 1;
        if self.game.outcome(&self.position).is_some() {
            self.position = self.game.start();
            self.plies = 0;
        }
    }
}

/// Returns the evaluation of every position: uniform priors and a value of 0.
fn undecided<'a>(legal: &'a [Action], priors: &'a [Vec<f32>]) -> Expansion<'a> {
    Expansion::Evaluated { actions: legal, priors: &priors[legal.len()], value: 0.0 }
}

#[cfg(test)]
mod tests {
    use games::TicTacToe;

    use super::*;

    fn player(algorithm: SearchAlgorithm, seed: u64) -> Player<TicTacToe> {
        Player::new(TicTacToe::new(), algorithm, 32, seed)
    }

    #[test]
    fn a_move_takes_its_simulations_unless_the_root_is_proven() {
        for algorithm in [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL] {
            let mut player = player(algorithm, 1);
            assert_eq!(player.play_move(), 32);
            assert!((0..200).all(|_| (1..=32).contains(&player.play_move())));
        }
    }

    #[test]
    fn games_go_to_their_end_and_begin_anew() {
        let mut player = player(SearchAlgorithm::Puct, 1);
        let plies: Vec<usize> = (0..60)
            .map(|_| {
                player.play_move();
                player.plies
            })
            .collect();
        assert!(plies.iter().filter(|&&plies| plies == 0).count() >= 6, "{plies:?}");
        assert!(plies.iter().any(|&plies| plies >= 5), "{plies:?}");
    }

    #[test]
    fn a_seed_fixes_the_games() {
        let [first, second, other] = [1, 1, 2].map(|seed| {
            let mut player = player(SearchAlgorithm::Puct, seed);
            (0..30).map(|_| (player.play_move(), player.nodes)).collect::<Vec<_>>()
        });
        assert_eq!(first, second);
        assert_ne!(first, other);
    }

    #[test]
    fn memory_is_counted_at_the_end_of_each_search() {
        let mut player = player(SearchAlgorithm::Puct, 1);
        player.play_move();
        assert_eq!((player.nodes, player.bytes), (player.tree.node_count() as u64, player.tree.bytes() as u64));
    }
}
