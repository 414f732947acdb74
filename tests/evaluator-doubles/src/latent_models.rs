use std::collections::HashMap;

use game::{Action, Game, Outcome, Player, Players};
use inference::{Attributes, Batch, Error, Evaluator, LatentModel, LatentPredictions, Predictions, Slot, Unroll};

use crate::Fault;

/// A learned model with exact rules: latent states are positions, and an evaluator gives priors and values.
///
/// An illegal action has prior 0 and loses at once (between two players; alone it ends the episode). A finished
/// position has the exact value, or 0 if it was scored by rewards, and absorbs every action without a reward. The
/// evaluator values the last observation of a truncated episode.
pub struct RulesModel<G: Game, E> {
    game: G,
    evaluator: E,
    /// Positions with accepted observations, by the bits of the observation.
    observed: HashMap<Vec<u32>, G::Position>,
    pool: Vec<Option<State<G::Position>>>,
    /// Numbers of calls so far.
    pub calls: Calls,
}

/// Call counts of a [`RulesModel`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Number of calls of [`LatentModel::initial`].
    pub initial: usize,
    /// Number of calls of [`LatentModel::recurrent`].
    pub recurrent: usize,
}

#[derive(Debug, Clone)]
struct State<P> {
    position: P,
    to_move: Player,
    /// Result, once the position is over.
    outcome: Option<Outcome>,
}

impl<G: Game, E: Evaluator> RulesModel<G, E> {
    /// Creates a model that accepts the observations of `positions`, which must all have different observations.
    pub fn new(game: G, evaluator: E, positions: impl IntoIterator<Item = G::Position>) -> Self {
        let observed = positions.into_iter().map(|position| (bits(&observe(&game, &position)), position)).collect();
        Self { game, evaluator, observed, pool: Vec::new(), calls: Calls::default() }
    }

    /// Creates a model of a tiny game that accepts the observation of every position reachable from these seeds.
    pub fn of_all(game: G, evaluator: E, seeds: impl IntoIterator<Item = u64>) -> Self {
        let mut left: Vec<G::Position> = seeds.into_iter().map(|seed| game.start_from(seed)).collect();
        let mut model = Self::new(game, evaluator, []);
        let mut legal = Vec::new();
        while let Some(position) = left.pop() {
            model.game.legal_actions(&position, &mut legal);
            let key = bits(&observe(&model.game, &position));
            if model.observed.insert(key, position.clone()).is_some() {
                continue;
            }
            for &action in &legal {
                let mut next = position.clone();
                model.game.play(&mut next, action);
                left.push(next);
            }
        }
        model
    }

    /// Replaces the evaluator, as new weights do, and empties the pool.
    pub fn replace(&mut self, evaluator: E) {
        self.evaluator = evaluator;
        self.pool.iter_mut().for_each(|state| *state = None);
    }

    fn state(&self, position: G::Position) -> State<G::Position> {
        State { to_move: self.game.to_move(&position), outcome: self.game.outcome(&position), position }
    }

    fn step(&self, from: &State<G::Position>, action: Action) -> (State<G::Position>, f32) {
        let mut next = from.clone();
        if from.outcome.is_none() && self.game.is_legal(&from.position, action) {
            let reward = self.game.play(&mut next.position, action);
            next = self.state(next.position);
            if next.outcome.is_some() {
                next.to_move = self.after(from.to_move);
            }
            return (next, reward);
        }
        next.to_move = self.after(from.to_move);
        if from.outcome.is_none() {
            next.outcome = Some(match self.game.spec().players {
                Players::One => Outcome::Finished,
                Players::Two => Outcome::Win(next.to_move),
            });
        }
        (next, 0.0)
    }

    fn after(&self, mover: Player) -> Player {
        match self.game.spec().players {
            Players::One => mover,
            Players::Two => mover.opponent(),
        }
    }

    /// Writes the states to the slots, and adds the predictions. `needs` returns true for states that the evaluator
    /// values.
    fn answer(
        &mut self,
        states: Vec<(Slot, State<G::Position>, f32)>,
        needs: impl Fn(&State<G::Position>) -> bool,
        predictions: &mut LatentPredictions,
    ) -> Result<(), Error> {
        let mut legal = Vec::new();
        let all: Vec<Action> = (0..).take(self.game.spec().actions).map(Action).collect();
        let (mut batch, mut evaluated) = (Batch::new(self.game.spec().observation), Predictions::new());
        for (_, state, _) in states.iter().filter(|(_, state, _)| needs(state)) {
            self.game.legal_actions(&state.position, &mut legal);
            let legal = if legal.is_empty() { &all } else { &legal };
            batch.push(legal, |planes| self.game.observe(&state.position, planes));
        }
        self.evaluator.evaluate(&batch, &mut evaluated)?;
        predictions.clear(all.len());
        let (mut logits, mut next) = (vec![0.0; all.len()], 0);
        for (slot, state, reward) in states {
            let is_finite = if needs(&state) {
                let legal = batch.legal(next);
                for (action, prior) in legal.iter().zip(evaluated.priors(next)) {
                    logits[action.index()] = prior.max(f32::MIN_POSITIVE).ln();
                }
                let value = evaluated.value(next);
                next += 1;
                predictions.push_logits(&logits, Some(legal), value, reward)
            } else {
                let value = state.outcome.map_or(0.0, |outcome| outcome.value_for(state.to_move));
                predictions.push_logits(&vec![0.0; all.len()], None, value, reward)
            };
            assert!(is_finite, "an evaluator of a test answers finite numbers");
            self.pool[slot.0 as usize] = Some(state);
        }
        Ok(())
    }
}

impl<G: Game, E> std::fmt::Debug for RulesModel<G, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RulesModel").field("game", &self.game).field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl<G: Game, E: Evaluator> LatentModel for RulesModel<G, E> {
    fn attributes(&self) -> Attributes {
        self.evaluator.attributes()
    }

    fn reserve(&mut self, slots: usize) -> Result<(), Error> {
        if self.pool.len() < slots {
            self.pool.resize(slots, None);
        }
        Ok(())
    }

    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error> {
        assert!(batch.len() == to.len() && batch.len() <= self.attributes().max_batch);
        self.calls.initial += 1;
        let unknown = || Error::Backend("the observation is of no position of the model".to_owned());
        let position = |i| self.observed.get(&bits(batch.observation(i))).cloned().ok_or_else(unknown);
        let state = |(i, &slot)| Ok((slot, self.state(position(i)?), 0.0));
        let states = to.iter().enumerate().map(state).collect::<Result<_, Error>>()?;
        self.answer(states, |_| true, predictions)
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        assert!(steps.len() <= self.attributes().max_batch);
        self.calls.recurrent += 1;
        let state = |step: &Unroll| {
            let from = self.pool[step.from.0 as usize].as_ref().expect("a step begins at a state that was computed");
            let (next, reward) = self.step(from, step.action);
            (step.to, next, reward)
        };
        let states = steps.iter().map(state).collect();
        self.answer(states, |state| state.outcome.is_none(), predictions)
    }
}

fn observe<G: Game>(game: &G, position: &G::Position) -> Vec<f32> {
    let mut planes = vec![0.0; game.spec().observation.len()];
    game.observe(position, &mut planes);
    planes
}

fn bits(observation: &[f32]) -> Vec<u32> {
    observation.iter().map(|value| value.to_bits()).collect()
}

/// Behaves like another model for a number of calls, then fails for one, and repeats this.
#[derive(Debug)]
pub struct FaultyModel<M> {
    /// The model for good calls.
    pub inner: M,
    fault: Fault,
    good_calls: usize,
    calls: usize,
}

impl<M: LatentModel> FaultyModel<M> {
    /// Creates a model that fails for one call after every `good_calls` calls. [`Fault::AnswersNan`] is an error too,
    /// since predictions of a learned model refuse NaN.
    pub fn new(inner: M, fault: Fault, good_calls: usize) -> Self {
        Self { inner, fault, good_calls, calls: 0 }
    }

    fn fails(&mut self) -> Result<(), Error> {
        self.calls += 1;
        if !self.calls.is_multiple_of(self.good_calls + 1) {
            return Ok(());
        }
        match self.fault {
            Fault::Backend => Err(Error::Backend("the test made it fail".to_owned())),
            Fault::NotFinite | Fault::AnswersNan => Err(Error::NotFinite { weights_version: 0 }),
        }
    }
}

impl<M: LatentModel> LatentModel for FaultyModel<M> {
    fn attributes(&self) -> Attributes {
        self.inner.attributes()
    }

    fn reserve(&mut self, slots: usize) -> Result<(), Error> {
        self.inner.reserve(slots)
    }

    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error> {
        self.fails()?;
        self.inner.initial(batch, to, predictions)
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        self.fails()?;
        self.inner.recurrent(steps, predictions)
    }

    fn codes(&self) -> usize {
        self.inner.codes()
    }

    fn act(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        self.fails()?;
        self.inner.act(steps, predictions)
    }
}
