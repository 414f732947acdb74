//! One position searched by many threads: this one owns the tree, each of the others an evaluator.
//!
//! A tree answers millions of simulations in a second and an evaluator thousands, so a tree needs no second thread; what takes
//! time is shared out. Leaves in flight hold a visit in the tree, so that the next descents go elsewhere. Answers are
//! applied in the order in which they were asked for: how fast each thread is changes nothing in the search.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use game::{Action, Game};
use inference::{Batch, Error, Evaluator, Predictions};
use rand::Rng;
use search::{Expansion, Exploration, Request, Selection, Tree};

use crate::analysis::{Analysis, AnalysisSettings, asked, searched};
use crate::step::Step;

/// [`analyse`](crate::analyse) for one position, with a thread for each evaluator, which all hold the same weights.
///
/// Each of them is asked for `leaves_per_tree` leaves at a time, so that many are in flight together.
///
/// # Errors
/// Those of the evaluators.
///
/// # Panics
/// If the position is over, or without an evaluator.
pub fn analyse_together<G: Game>(
    game: &G,
    position: &G::Position,
    settings: &AnalysisSettings,
    evaluators: &mut [Box<dyn Evaluator>],
    rng: &mut impl Rng,
) -> Result<Analysis, Error> {
    assert!(game.outcome(position).is_none(), "a position that is over has nothing to analyse");
    assert!(!evaluators.is_empty(), "somebody must evaluate");
    std::thread::scope(|scope| {
        let desks = evaluators.iter_mut().map(|evaluator| Desk::open(scope, evaluator, game)).collect();
        let mut team = Team { game, desks, asked: VecDeque::new(), legal: Vec::new() };
        let mut tree = Tree::new(settings.search.clone());
        team.root(&mut tree, position)?;
        if settings.simulations == 0 {
            return Ok(asked(&tree));
        }
        tree.begin(settings.simulations, Exploration::Greedy, rng);
        team.search(&mut tree, settings.leaves_per_tree.max(1))?;
        Ok(searched(&tree))
    })
}

/// The evaluators at work.
struct Team<'a, G: Game> {
    game: &'a G,
    desks: Vec<Desk<G>>,
    /// The desks that evaluate, whoever was asked first in front.
    asked: VecDeque<usize>,
    legal: Vec<Action>,
}

/// One evaluator on a thread of its own. Its errand is here or there.
struct Desk<G: Game> {
    errand: Option<Errand<G>>,
    there: SyncSender<Errand<G>>,
    back: Receiver<Errand<G>>,
}

/// Leaves on their way to an evaluator, or back with the answers.
struct Errand<G: Game> {
    batch: Batch,
    /// One for each position of the batch.
    leaves: Vec<Leaf<G>>,
    predictions: Predictions,
    result: Result<(), Error>,
}

struct Leaf<G: Game> {
    request: Request,
    position: G::Position,
    reward: f32,
    discount: f32,
}

impl<G: Game> Desk<G> {
    fn open<'scope>(scope: &'scope Scope<'scope, '_>, evaluator: &'scope mut Box<dyn Evaluator>, game: &G) -> Self {
        let (there, errands) = sync_channel::<Errand<G>>(1);
        let (answers, back) = sync_channel(1);
        scope.spawn(move || {
            for mut errand in errands {
                errand.result = evaluator.evaluate(&errand.batch, &mut errand.predictions);
                if answers.send(errand).is_err() {
                    return;
                }
            }
        });
        let errand = Errand {
            batch: Batch::new(game.spec().observation),
            leaves: Vec::new(),
            predictions: Predictions::new(),
            result: Ok(()),
        };
        Self { errand: Some(errand), there, back }
    }

    /// Sends the errand off.
    fn send(&mut self, errand: Errand<G>) {
        // A thread that has ended has panicked: that is seen when its answer is waited for.
        let _ = self.there.send(errand);
    }

    /// Waits for it.
    fn wait(&mut self) -> Result<Errand<G>, Error> {
        let errand = self.back.recv().map_err(|_| Error::Backend("an evaluator's thread has ended".to_owned()))?;
        match errand.result {
            Ok(()) => Ok(errand),
            Err(error) => Err(error),
        }
    }
}

impl<G: Game> Team<'_, G> {
    /// Gives the tree its root.
    fn root(&mut self, tree: &mut Tree<G::Position>, position: &G::Position) -> Result<(), Error> {
        let desk = &mut self.desks[0];
        let mut errand = desk.errand.take().expect("nobody was asked yet");
        self.game.legal_actions(position, &mut self.legal);
        errand.batch.push(&self.legal, |planes| self.game.observe(position, planes));
        desk.send(errand);
        let mut errand = desk.wait()?;
        tree.reset(position.clone(), errand.expansion(0));
        errand.batch.clear();
        desk.errand = Some(errand);
        Ok(())
    }

    /// Searches to the end.
    fn search(&mut self, tree: &mut Tree<G::Position>, leaves_max: usize) -> Result<(), Error> {
        loop {
            for desk in 0..self.desks.len() {
                if let Some(mut errand) = self.desks[desk].errand.take() {
                    self.gather(tree, &mut errand, leaves_max);
                    if errand.leaves.is_empty() {
                        self.desks[desk].errand = Some(errand);
                        break;
                    }
                    self.desks[desk].send(errand);
                    self.asked.push_back(desk);
                }
            }
            let Some(desk) = self.asked.pop_front() else {
                assert!(tree.is_finished(), "a search that is not finished and has nothing in flight goes on");
                return Ok(());
            };
            let mut errand = self.desks[desk].wait()?;
            errand.answer(tree);
            self.desks[desk].errand = Some(errand);
        }
    }

    /// Descends until `leaves_max` leaves wait or no more can be selected; what is over is answered at once.
    fn gather(&mut self, tree: &mut Tree<G::Position>, errand: &mut Errand<G>, leaves_max: usize) {
        while errand.leaves.len() < leaves_max && !tree.is_finished() {
            let request = match tree.select() {
                Selection::Busy => return,
                Selection::Completed => continue,
                Selection::Leaf(request) => request,
            };
            let mut position = tree.parent_state(&request).clone();
            let Step { reward, discount, terminal } = Step::play(self.game, &mut position, request.action);
            if let Some(value) = terminal {
                tree.answer(request, position, reward, discount, Expansion::Terminal { value });
                continue;
            }
            self.game.legal_actions(&position, &mut self.legal);
            errand.batch.push(&self.legal, |planes| self.game.observe(&position, planes));
            errand.leaves.push(Leaf { request, position, reward, discount });
        }
    }
}

impl<G: Game> Errand<G> {
    /// The answer to position `i`.
    fn expansion(&self, i: usize) -> Expansion<'_> {
        let (priors, value) = (self.predictions.priors(i), self.predictions.value(i).value());
        Expansion::Evaluated { actions: self.batch.legal(i), priors, value }
    }

    /// Answers all leaves; the errand is empty then.
    fn answer(&mut self, tree: &mut Tree<G::Position>) {
        let mut leaves = std::mem::take(&mut self.leaves);
        for (i, Leaf { request, position, reward, discount }) in leaves.drain(..).enumerate() {
            tree.answer(request, position, reward, discount, self.expansion(i));
        }
        self.leaves = leaves;
        self.batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use games::{ConnectFour, TicTacToe};
    use inference::testing::{Fault, Faulty, Hashing};
    use inference::{Attributes, Wdl};
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;
    use search::{EarlyStop, Proven, SearchAlgorithm, Settings as SearchSettings, Solver};

    use super::*;
    use crate::analyse;

    fn settings(simulations: u32, leaves_per_tree: usize) -> AnalysisSettings {
        AnalysisSettings { simulations, search: SearchSettings::default(), leaves_per_tree, batch: leaves_per_tree }
    }

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(1)
    }

    fn hashing(count: usize) -> Vec<Box<dyn Evaluator>> {
        let shape = ConnectFour::new().spec().observation;
        (0..count).map(|_| Box::new(Hashing::new(shape, 3)) as Box<dyn Evaluator>).collect()
    }

    #[test]
    fn one_thread_with_one_leaf_searches_as_the_caller_would() {
        let game = ConnectFour::new();
        for (simulations, algorithm) in
            [(0, SearchAlgorithm::Puct), (200, SearchAlgorithm::Puct), (200, SearchAlgorithm::GUMBEL)]
        {
            let settings = AnalysisSettings {
                search: SearchSettings { algorithm, ..SearchSettings::default() },
                ..settings(simulations, 1)
            };
            let together = analyse_together(&game, &game.start(), &settings, &mut hashing(1), &mut rng()).unwrap();
            let alone = analyse(&game, &[game.start()], &settings, &mut *hashing(1)[0], &mut rng()).unwrap();
            assert_eq!(together, alone[0]);
        }
    }

    #[test]
    fn many_threads_make_the_budget_and_the_same_search_every_time() {
        let game = ConnectFour::new();
        for (threads, leaves) in [(2, 1), (3, 4), (8, 8)] {
            for algorithm in [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL] {
                let search = SearchSettings { algorithm, ..SearchSettings::default() };
                let settings = AnalysisSettings { search, ..settings(300, leaves) };
                let analyse =
                    || analyse_together(&game, &game.start(), &settings, &mut hashing(threads), &mut rng()).unwrap();
                let analysis = analyse();
                assert_eq!(analysis.visit_counts.iter().sum::<u32>(), 300);
                for _ in 0..5 {
                    assert_eq!(analyse(), analysis);
                }
            }
        }
    }

    #[test]
    fn what_many_threads_prove_is_true() {
        let game = ConnectFour::new();
        let lost = game.replay(&[2, 2, 3, 3, 4].map(Action)).unwrap();
        let won = game.replay(&[3, 0, 3, 0, 3, 0].map(Action)).unwrap();
        for (position, proven) in [(lost, Proven::Loss), (won, Proven::Win)] {
            let analysis = analyse_together(&game, &position, &settings(400, 4), &mut hashing(3), &mut rng()).unwrap();
            assert_eq!(analysis.proven, proven);
        }
    }

    /// Answers only when as many of its kind are asked at the same time: one after the other they would wait for ever.
    struct Meeting {
        meets: Arc<Barrier>,
        evaluator: Hashing,
        /// Batches until it meets the others: the root is evaluated by one alone.
        alone: usize,
    }

    impl Evaluator for Meeting {
        fn attributes(&self) -> Attributes {
            self.evaluator.attributes()
        }

        fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
            match self.alone {
                0 => drop(self.meets.wait()),
                _ => self.alone -= 1,
            }
            self.evaluator.evaluate(batch, predictions)
        }
    }

    #[test]
    fn evaluators_are_asked_at_the_same_time() {
        let game = ConnectFour::new();
        let meets = Arc::new(Barrier::new(3));
        let evaluator = |desk| Meeting {
            meets: Arc::clone(&meets),
            evaluator: Hashing::new(game.spec().observation, 3),
            alone: usize::from(desk == 0),
        };
        let mut evaluators: Vec<Box<dyn Evaluator>> = (0..3).map(|desk| Box::new(evaluator(desk)) as _).collect();
        // Three leaves in flight at a time, and three times as many simulations: each of the three is always asked again.
        let search = SearchSettings { solver: Solver::Off, early_stop: EarlyStop::Never, ..SearchSettings::default() };
        let settings = AnalysisSettings { search, ..settings(30, 1) };
        let analysis = analyse_together(&game, &game.start(), &settings, &mut evaluators, &mut rng()).unwrap();
        assert_eq!(analysis.visit_counts.iter().sum::<u32>(), 30);
    }

    #[test]
    fn one_failing_evaluator_of_many_is_reported_and_all_threads_end() {
        let game = TicTacToe::new();
        let shape = game.spec().observation;
        let mut evaluators: Vec<Box<dyn Evaluator>> =
            vec![Box::new(Hashing::new(shape, 3)), Box::new(Faulty::new(shape, Fault::Backend, 3))];
        let error = analyse_together(&game, &game.start(), &settings(100, 2), &mut evaluators, &mut rng()).unwrap_err();
        assert!(matches!(error, Error::Backend(_)), "{error}");
    }

    #[test]
    fn an_even_evaluator_leaves_the_choice_to_the_rules() {
        let game = TicTacToe::new();
        let shape = game.spec().observation;
        let even = |_: &[f32], legal: &[Action], priors: &mut [f32]| {
            priors.fill(1.0 / legal.len() as f32);
            Wdl::EVEN
        };
        let mut evaluators: Vec<Box<dyn Evaluator>> =
            (0..2).map(|_| Box::new(inference::testing::Scripted::new(shape, 1, even)) as _).collect();
        // Two in a row against one: only the third wins.
        let position = game.replay(&[0, 4, 1, 8].map(Action)).unwrap();
        let analysis = analyse_together(&game, &position, &settings(100, 2), &mut evaluators, &mut rng()).unwrap();
        assert_eq!(analysis.best, Action(2));
    }
}
