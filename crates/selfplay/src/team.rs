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
mod tests;
