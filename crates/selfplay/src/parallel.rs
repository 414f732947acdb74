//! Search of one position by many threads: the calling thread owns the tree, and each worker thread owns an evaluator.
//! With a single evaluator, the calling thread also evaluates.
//!
//! A tree processes millions of simulations per second, and an evaluator thousands. The tree therefore needs only one
//! thread, and only the evaluations are distributed. Each leaf in flight holds a visit in the tree, so that later
//! descents reach different leaves. Results are applied in the order in which the batches were sent, so the speed of
//! the threads does not affect the search.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use game::Game;
use inference::{Error, Evaluator};
use rand::Rng;
use search::{Exploration, Tree};

use crate::analysis::{Analysis, AnalysisSettings, analysis_of};
use crate::leaf_batcher::{BatchContext, Buffers, LeafBatcher, LeafEvaluator, Limits, NetworkLeaves};
use crate::tree_search::{TreeSearch, settings_by_rules};

/// A callback after every batch of a search. The first argument returns the analysis of the search so far. `Break`
/// stops the search.
pub type AnalysisProgress<'a> = dyn FnMut(&dyn Fn() -> Analysis, TreeSize) -> ControlFlow<()> + 'a;

/// The size of a search tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeSize {
    /// Number of nodes, each with a position.
    pub nodes: usize,
    /// Size of all nodes, edges and positions in bytes, as from [`Tree::bytes`].
    pub bytes: usize,
}

/// Runs [`analyse`](crate::analyse) for one position, with a thread for each of several evaluators, until the search is
/// finished or `progress` returns `Break`. All evaluators must have the same weights.
///
/// Each batch of an evaluator has up to `leaves_per_tree` leaves, and the batches of all evaluators are in flight
/// together.
///
/// # Errors
/// An evaluator fails.
///
/// # Panics
/// If the game is over at the position, or `evaluators` is empty.
pub fn analyse_together<G: Game>(
    game: &G,
    position: &G::Position,
    settings: &AnalysisSettings,
    evaluators: &mut [Box<dyn Evaluator>],
    rng: &mut impl Rng,
    progress: &mut AnalysisProgress<'_>,
) -> Result<Analysis, Error> {
    assert!(game.outcome(position).is_none(), "the game is over at the position, so there is nothing to analyse");
    let mut search = TreeSearch::new(&settings_by_rules(game.spec(), &settings.search), 0);
    let AnalysisSettings { simulations, leaves_per_tree, discount, .. } = *settings;
    let limits = Limits { leaves: leaves_per_tree.max(1), completed: usize::MAX };
    let effort = Effort { simulations, limits, discount };
    let mut progress = |tree: &Tree<G::Position>| {
        let size = TreeSize { nodes: tree.node_count(), bytes: tree.bytes() };
        progress(&|| analysis_of(tree, simulations), size)
    };
    search_together(game, position, &mut search, &effort, evaluators, rng, &mut progress)?;
    Ok(analysis_of(&search.tree, simulations))
}

/// The budget and the batch sizes of a multi-threaded search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Number of simulations at which the search ends, including the visits already in the tree.
    pub(crate) simulations: u32,
    /// Limits of one batch, which also bound how many simulations run between two calls of `progress`.
    pub(crate) limits: Limits,
    /// The discount γ for each step of the game.
    pub(crate) discount: f32,
}

/// A callback after every batch of a search, which returns `Break` to stop the search.
pub(crate) type TreeProgress<'a, S> = dyn FnMut(&Tree<S>) -> ControlFlow<()> + 'a;

/// Searches a position with a thread for each of several evaluators, until the search is finished or `progress` returns
/// `Break`. Leaves in flight are still completed, so that a later search can continue the tree. The game must not be
/// over.
///
/// # Errors
/// An evaluator fails. With several evaluators, the tree must not be used afterwards.
pub(crate) fn search_together<G: Game>(
    game: &G,
    position: &G::Position,
    search: &mut TreeSearch<G::Position>,
    effort: &Effort,
    evaluators: &mut [Box<dyn Evaluator>],
    rng: &mut impl Rng,
    progress: &mut TreeProgress<'_, G::Position>,
) -> Result<(), Error> {
    let is_alone = evaluators.len() == 1;
    let first = evaluators.first_mut().expect("a search needs an evaluator");
    let mut buffers = Buffers::new(game);
    let mut leaves = NetworkLeaves::new(first.as_mut(), &mut buffers);
    let context = BatchContext::new(game, effort.discount, &leaves);
    if is_alone {
        return search_alone(&context, position, search, effort, &mut leaves, rng, progress);
    }
    std::thread::scope(|scope| {
        let workers =
            evaluators.iter_mut().map(|evaluator| Worker::spawn(scope, evaluator.as_mut(), context)).collect();
        let mut parallel = ParallelSearch { context, workers, in_flight: VecDeque::new() };
        parallel.run(search, position, effort, rng, progress)
    })
}

/// Runs [`search_together`] with a single evaluator, on this thread.
fn search_alone<G: Game>(
    context: &BatchContext<'_, G>,
    position: &G::Position,
    search: &mut TreeSearch<G::Position>,
    effort: &Effort,
    leaves: &mut NetworkLeaves<'_>,
    rng: &mut impl Rng,
    progress: &mut TreeProgress<'_, G::Position>,
) -> Result<(), Error> {
    let mut batcher = LeafBatcher::new(context.game);
    loop {
        let begin = |tree: &mut Tree<G::Position>| tree.begin(effort.simulations, Exploration::Greedy, rng);
        let gathered = batcher.gather(context, search, position, effort.limits, begin);
        if gathered.is_finished {
            return Ok(());
        }
        assert!(gathered.goes_on() || gathered.completed > 0, "an unfinished search completes simulations");
        batcher.resolve(context, leaves, search)?;
        if search.tree.is_ready() && progress(&search.tree).is_break() {
            return Ok(());
        }
    }
}

/// The workers and the batches in flight of a search in one tree.
struct ParallelSearch<'a, G: Game> {
    context: BatchContext<'a, G>,
    workers: Vec<Worker<G>>,
    /// The indices of the busy workers, in the order in which the batches were sent.
    in_flight: VecDeque<usize>,
}

/// One evaluator on a separate thread. `job` is `None` while a batch is in flight.
struct Worker<G: Game> {
    job: Option<Job<G>>,
    jobs: SyncSender<Job<G>>,
    done: Receiver<Job<G>>,
}

/// A batch of leaves sent to an evaluator, and returned with the predictions.
struct Job<G: Game> {
    batcher: LeafBatcher<G>,
    buffers: Buffers,
    result: Result<(), Error>,
}

impl<G: Game> Worker<G> {
    fn spawn<'scope>(
        scope: &'scope Scope<'scope, '_>,
        evaluator: &'scope mut dyn Evaluator,
        context: BatchContext<'scope, G>,
    ) -> Self {
        let (jobs, received) = sync_channel::<Job<G>>(1);
        let (answers, done) = sync_channel(1);
        scope.spawn(move || {
            for mut job in received {
                let mut leaves = NetworkLeaves::new(&mut *evaluator, &mut job.buffers);
                job.batcher.observe(&context, &mut leaves);
                job.result = LeafEvaluator::<G>::evaluate(&mut leaves).map(|_| ());
                if answers.send(job).is_err() {
                    return;
                }
            }
        });
        let (batcher, buffers) = (LeafBatcher::new(context.game), Buffers::new(context.game));
        Self { job: Some(Job { batcher, buffers, result: Ok(()) }), jobs, done }
    }
}

impl<G: Game> ParallelSearch<'_, G> {
    /// Searches `position` until the search is finished or `progress` returns `Break`.
    fn run(
        &mut self,
        search: &mut TreeSearch<G::Position>,
        position: &G::Position,
        effort: &Effort,
        rng: &mut impl Rng,
        progress: &mut TreeProgress<'_, G::Position>,
    ) -> Result<(), Error> {
        let mut is_stopped = false;
        loop {
            let completed = if is_stopped { 0 } else { self.gather(search, position, effort, rng) };
            match self.in_flight.pop_front() {
                Some(index) => self.receive(index, search)?,
                None if is_stopped || search.tree.is_finished() => return Ok(()),
                None => {
                    assert!(completed > 0, "an unfinished search with nothing in flight completes simulations");
                }
            }
            is_stopped = is_stopped || (search.tree.is_ready() && progress(&search.tree).is_break());
        }
    }

    /// Sends a batch to each free worker. Returns the number of simulations completed without an evaluation.
    fn gather(
        &mut self,
        search: &mut TreeSearch<G::Position>,
        position: &G::Position,
        effort: &Effort,
        rng: &mut impl Rng,
    ) -> usize {
        let mut completed = 0;
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let Some(mut job) = worker.job.take() else { continue };
            let begin = |tree: &mut Tree<G::Position>| tree.begin(effort.simulations, Exploration::Greedy, rng);
            let gathered = job.batcher.gather(&self.context, search, position, effort.limits, begin);
            completed += gathered.completed;
            if gathered.waiting == 0 {
                worker.job = Some(job);
                break;
            }
            // A send fails only if the thread has panicked, which `done.recv()` detects.
            let _ = worker.jobs.send(job);
            self.in_flight.push_back(index);
        }
        completed
    }

    /// Waits for the batch of the worker `index` and applies the predictions to the tree.
    fn receive(&mut self, index: usize, search: &mut TreeSearch<G::Position>) -> Result<(), Error> {
        let worker = &mut self.workers[index];
        let ended = |_| Error::Backend("an evaluator thread stopped".to_owned());
        let mut job = worker.done.recv().map_err(ended)?;
        std::mem::replace(&mut job.result, Ok(()))?;
        job.batcher.answer(&self.context, &job.buffers.predictions, search);
        worker.job = Some(job);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow::{Break, Continue};
    use std::sync::{Arc, Barrier};

    use evaluator_doubles::{Fault, Faulty};
    use game::Action;
    use games::{ConnectFour, TicTacToe};
    use inference::{Attributes, Batch, Hashing, Predictions, Wdl};
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;
    use search::{EarlyStop, Proven, SearchAlgorithm, Settings as SearchSettings, Solver};

    use super::*;
    use crate::analyse;

    fn settings(simulations: u32, leaves_per_tree: usize) -> AnalysisSettings {
        let search = SearchSettings::default();
        AnalysisSettings { simulations, search, leaves_per_tree, batch: leaves_per_tree, discount: 1.0 }
    }

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(1)
    }

    fn together<G: Game>(
        game: &G,
        position: &G::Position,
        settings: &AnalysisSettings,
        evaluators: &mut [Box<dyn Evaluator>],
    ) -> Result<Analysis, Error> {
        analyse_together(game, position, settings, evaluators, &mut rng(), &mut |_, _| Continue(()))
    }

    fn hashing(count: usize) -> Vec<Box<dyn Evaluator>> {
        let shape = ConnectFour::new().spec().observation;
        (0..count).map(|_| Box::new(Hashing::new(shape, 3)) as Box<dyn Evaluator>).collect()
    }

    #[test]
    fn one_thread_with_one_leaf_equals_a_search_on_the_calling_thread() {
        let game = ConnectFour::new();
        for (simulations, algorithm) in
            [(0, SearchAlgorithm::Puct), (200, SearchAlgorithm::Puct), (200, SearchAlgorithm::GUMBEL)]
        {
            let settings = AnalysisSettings {
                search: SearchSettings { algorithm, ..SearchSettings::default() },
                ..settings(simulations, 1)
            };
            let together = together(&game, &game.start(), &settings, &mut hashing(1)).unwrap();
            let alone = analyse(&game, &[game.start()], &settings, &mut *hashing(1)[0], &mut rng()).unwrap();
            assert_eq!(together, alone[0]);
        }
    }

    #[test]
    fn many_threads_spend_the_whole_budget_and_give_the_same_analysis_every_time() {
        let game = ConnectFour::new();
        for (threads, leaves) in [(2, 1), (3, 4), (8, 8)] {
            for algorithm in [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL] {
                let search = SearchSettings { algorithm, ..SearchSettings::default() };
                let settings = AnalysisSettings { search, ..settings(300, leaves) };
                let analyse = || together(&game, &game.start(), &settings, &mut hashing(threads)).unwrap();
                let analysis = analyse();
                assert_eq!(analysis.visit_counts.iter().sum::<u32>(), 300);
                for _ in 0..5 {
                    assert_eq!(analyse(), analysis);
                }
            }
        }
    }

    #[test]
    fn progress_changes_no_search_and_may_end_it() {
        fn search(threads: usize, progress: &mut AnalysisProgress<'_>) -> Analysis {
            let (game, settings) = (ConnectFour::new(), settings(300, 2));
            analyse_together(&game, &game.start(), &settings, &mut hashing(threads), &mut rng(), progress).unwrap()
        }
        for threads in [1, 3] {
            let (mut counts, mut sizes, mut batches) = (Vec::new(), Vec::new(), 0);
            let whole = search(threads, &mut |so_far, size| {
                counts.push(so_far().visit_counts.iter().sum::<u32>());
                sizes.push(size);
                Continue(())
            });
            assert_eq!(whole, search(threads, &mut |_, _| Continue(())));
            assert!(counts.is_sorted() && counts.len() > 20, "{counts:?}");
            let node_bytes_min = size_of::<<ConnectFour as Game>::Position>();
            assert!(sizes.iter().all(|size| size.bytes > size.nodes * node_bytes_min), "{sizes:?}");
            assert!(sizes.is_sorted_by_key(|size| size.nodes) && sizes.last().unwrap().nodes > 20, "{sizes:?}");
            let part = search(threads, &mut |_, _| {
                batches += 1;
                if batches == 5 { Break(()) } else { Continue(()) }
            });
            let simulations: u32 = part.visit_counts.iter().sum();
            assert!(batches == 5 && (1..100).contains(&simulations), "{simulations} after {batches} batches");
        }
    }

    #[test]
    fn results_proven_by_many_threads_are_correct() {
        let game = ConnectFour::new();
        let lost = game.replay(&[2, 2, 3, 3, 4].map(Action)).unwrap();
        let won = game.replay(&[3, 0, 3, 0, 3, 0].map(Action)).unwrap();
        for (position, proven) in [(lost, Proven::Loss), (won, Proven::Win)] {
            let analysis = together(&game, &position, &settings(400, 4), &mut hashing(3)).unwrap();
            assert_eq!(analysis.proven, proven);
        }
    }

    /// An evaluator that waits until all evaluators with the same barrier `meets` evaluate at the same time. Sequential
    /// evaluation would block forever.
    struct Rendezvous {
        meets: Arc<Barrier>,
        evaluator: Hashing,
        /// Number of batches before the first rendezvous: a single evaluator evaluates the root.
        alone: usize,
    }

    impl Evaluator for Rendezvous {
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
    fn evaluators_work_at_the_same_time() {
        let game = ConnectFour::new();
        let meets = Arc::new(Barrier::new(3));
        let evaluator = |worker| Rendezvous {
            meets: Arc::clone(&meets),
            evaluator: Hashing::new(game.spec().observation, 3),
            alone: usize::from(worker == 0),
        };
        let mut evaluators: Vec<Box<dyn Evaluator>> = (0..3).map(|worker| Box::new(evaluator(worker)) as _).collect();
        // Three leaves in flight at a time, and a number of simulations that is a multiple of three, so that all three
        // evaluators are always used together.
        let search = SearchSettings { solver: Solver::Off, early_stop: EarlyStop::Never, ..SearchSettings::default() };
        let settings = AnalysisSettings { search, ..settings(30, 1) };
        let analysis = together(&game, &game.start(), &settings, &mut evaluators).unwrap();
        assert_eq!(analysis.visit_counts.iter().sum::<u32>(), 30);
    }

    #[test]
    fn one_failing_evaluator_of_many_is_reported_and_all_threads_end() {
        let game = TicTacToe::new();
        let shape = game.spec().observation;
        let mut evaluators: Vec<Box<dyn Evaluator>> =
            vec![Box::new(Hashing::new(shape, 3)), Box::new(Faulty::new(shape, Fault::Backend, 3))];
        let error = together(&game, &game.start(), &settings(100, 2), &mut evaluators).unwrap_err();
        assert!(matches!(error, Error::Backend(_)), "{error}");
    }

    #[test]
    fn a_search_with_even_predictions_finds_the_winning_move() {
        let game = TicTacToe::new();
        let shape = game.spec().observation;
        let even = |_: &[f32], legal: &[Action], priors: &mut [f32]| {
            priors.fill(1.0 / legal.len() as f32);
            Wdl::EVEN
        };
        let mut evaluators: Vec<Box<dyn Evaluator>> =
            (0..2).map(|_| Box::new(evaluator_doubles::Scripted::new(shape, 1, even)) as _).collect();
        // Two in a row against one: only the third action in that row wins.
        let position = game.replay(&[0, 4, 1, 8].map(Action)).unwrap();
        let analysis = together(&game, &position, &settings(100, 2), &mut evaluators).unwrap();
        assert_eq!(analysis.best, Action(2));
    }
}
