//! The reanalysis of one stored episode, called a course: the positions in order, and the new search results.

use experience::{ActionProbability, Episode, Segment, Step, StepKind, Trajectory, bound_policies};
use game::{Action, Game, Outcome};
use rand_chacha::ChaCha8Rng;

use super::{Reanalysed, generator};
use crate::driver::SearchRoot;

/// The reason why a trajectory cannot be reanalysed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The trajectory belongs to another game.
    #[error("the episode belongs to {0}")]
    OtherGame(String),
    /// An action of the trajectory is illegal under the rules.
    #[error(transparent)]
    Illegal(#[from] game::Error),
    /// A stored reward differs from the reward under the rules.
    #[error("the reward at ply {ply} does not match the rules")]
    Reward {
        /// The ply of the first different reward.
        ply: usize,
    },
    /// The stored observations do not have the observation size of the game.
    #[error("observations have {stored} values, expected {expected}")]
    Observations {
        /// Number of values in a stored observation.
        stored: usize,
        /// Number of values in an observation of the game.
        expected: usize,
    },
    /// No step of the trajectory was chosen by a search.
    #[error("no step was searched")]
    NothingSearched,
}

/// A trajectory in progress.
pub(super) struct Course<G: Game> {
    trajectory: Trajectory,
    /// The steps, with the new search results received so far.
    steps: Vec<Step>,
    episode: Episode,
    source: Source<G>,
    /// The next ply to search.
    ply: usize,
    /// True if the last observation still needs an evaluation.
    needs_last: bool,
    /// Number of positions that [`next`](Self::next) has not returned yet.
    left: usize,
    /// Number of positions that [`next`](Self::next) has returned and that have no result yet.
    in_flight: usize,
    positions: usize,
    is_abandoned: bool,
}

/// The source of the positions of an episode.
enum Source<G: Game> {
    /// The position at the next ply, recomputed by the rules from the seed and the actions.
    Rules(G::Position),
    /// Stored observations of an environment, which no rules can recompute.
    Recorded(Segment),
}

/// A position to search again.
pub(super) struct Position<G: Game> {
    /// The number of the course that contains the position.
    pub(super) course: u64,
    /// The ply of the position, or the number of steps for [`Purpose::Last`].
    pub(super) ply: usize,
    pub(super) purpose: Purpose,
    pub(super) root: SearchRoot<G>,
    /// Random number generator of the search. Each search uses a copy, so that a restarted search draws the same noise.
    pub(super) rng: ChaCha8Rng,
}

/// The kind of result that a position needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A policy and a value from a full search.
    Full,
    /// Only a value, from a fast search.
    Fast,
    /// The network value of the last observation of a truncated episode, without a search.
    Last,
}

/// The result for a position.
pub(super) enum Answer {
    /// The search policy and the search value. A fast step ignores the policy.
    Searched { policy: Vec<ActionProbability>, value: f32 },
    /// The network value of the last observation.
    Last(f32),
    /// The stored result stays unchanged.
    Kept,
}

impl<G: Game> Course<G> {
    pub(super) fn new(game: &G, trajectory: &Trajectory) -> Result<Self, Unusable> {
        if trajectory.game() != game.spec().name {
            return Err(Unusable::OtherGame(trajectory.game().to_owned()));
        }
        let searched = trajectory.searched_steps();
        if searched == 0 {
            return Err(Unusable::NothingSearched);
        }
        let (steps, episode): (Vec<Step>, _) = (trajectory.steps().collect(), trajectory.episode());
        let source = Source::new(game, trajectory, &steps, episode.seed)?;
        let needs_last = episode.outcome == Outcome::Truncated;
        let positions = searched + usize::from(needs_last);
        Ok(Self {
            trajectory: trajectory.clone(),
            steps,
            episode,
            source,
            ply: 0,
            needs_last,
            left: positions,
            in_flight: 0,
            positions,
            is_abandoned: false,
        })
    }

    /// Returns true if the positions are stored observations, which need search in a learned model.
    pub(super) fn is_recorded(&self) -> bool {
        matches!(self.source, Source::Recorded(_))
    }

    /// Abandons the trajectory: [`finish`](Self::finish) will return `None`.
    pub(super) fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    /// Returns the number of positions that [`next`](Self::next) has not returned yet; 0 for an abandoned trajectory.
    pub(super) fn left(&self) -> usize {
        if self.is_abandoned { 0 } else { self.left }
    }

    /// Returns the next position to search, or `None` if no position is left. `number` is the number of this course.
    pub(super) fn next(&mut self, game: &G, number: u64, seed: u64) -> Option<Position<G>> {
        if self.left() == 0 {
            return None;
        }
        let mut taken = None;
        while taken.is_none() && self.ply < self.steps.len() {
            let (ply, step) = (self.ply, &self.steps[self.ply]);
            taken = match step.kind {
                StepKind::Opening => None,
                StepKind::Fast { .. } => Some((ply, Purpose::Fast, self.source.root(ply)?)),
                StepKind::Full { .. } => Some((ply, Purpose::Full, self.source.root(ply)?)),
            };
            self.source.play(game, step.action);
            self.ply += 1;
        }
        let (ply, purpose, root) = match taken {
            Some(taken) => taken,
            None if std::mem::take(&mut self.needs_last) => (self.ply, Purpose::Last, self.source.root(self.ply)?),
            None => return None,
        };
        (self.left, self.in_flight) = (self.left - 1, self.in_flight + 1);
        Some(Position { course: number, ply, purpose, root, rng: generator(seed, &self.trajectory, ply) })
    }

    /// Stores the result for the position at `ply`, computed with weights of version `weights_version`.
    pub(super) fn answer(&mut self, ply: usize, answer: Answer, weights_version: u64) {
        self.in_flight -= 1;
        match answer {
            Answer::Kept => {}
            Answer::Last(value) => self.episode.truncation_value = value,
            Answer::Searched { policy, value } => {
                let step = &mut self.steps[ply];
                step.kind = match step.kind {
                    StepKind::Full { .. } => StepKind::Full { policy, value },
                    StepKind::Fast { .. } | StepKind::Opening => StepKind::Fast { value },
                };
                step.weights_version.0 = weights_version;
            }
        }
    }

    /// Returns true if every position has a result or the trajectory was abandoned.
    pub(super) fn is_finished(&self) -> bool {
        self.is_abandoned || (self.left == 0 && self.in_flight == 0)
    }

    /// Returns the trajectory with the new search results. `None` if the trajectory was abandoned or the result is
    /// invalid.
    pub(super) fn finish(self) -> Option<Reanalysed> {
        let Self { trajectory, mut steps, episode, positions, is_abandoned, .. } = self;
        if is_abandoned {
            return None;
        }
        bound_policies(&mut steps);
        let trajectory = Trajectory::of_episode(trajectory.id(), trajectory.game(), &steps, episode);
        Some(Reanalysed { trajectory: trajectory.ok()?, positions })
    }
}

impl<G: Game> Source<G> {
    /// Checks the whole episode against the rules, so that later plies cannot fail.
    fn new(game: &G, trajectory: &Trajectory, steps: &[Step], seed: u64) -> Result<Self, Unusable> {
        if trajectory.has_observations() {
            let segment = trajectory.segment(0, usize::MAX).expect("a trajectory has a first ply");
            let stored = segment.observation_layout().map_or(0, |layout| layout.observation_values());
            let expected = game.spec().observation.len();
            if stored != expected {
                return Err(Unusable::Observations { stored, expected });
            }
            return Ok(Self::Recorded(segment));
        }
        // Episodes of games without randomness have the seed 0, which gives the standard start position.
        let start = game.start_from(seed);
        let mut position = start.clone();
        for (ply, step) in steps.iter().enumerate() {
            if game.try_play(&mut position, step.action)? != step.reward {
                return Err(Unusable::Reward { ply });
            }
        }
        Ok(Self::Rules(start))
    }

    /// Returns the root of the search at `ply`, which must be the next ply.
    fn root(&self, ply: usize) -> Option<SearchRoot<G>> {
        match self {
            Self::Rules(position) => Some(SearchRoot::Position(position.clone())),
            Self::Recorded(segment) => {
                let mut observation = vec![0.0; segment.observation_layout()?.observation_values()];
                segment.observation(ply, &mut observation)?;
                Some(SearchRoot::Observation(observation))
            }
        }
    }

    fn play(&mut self, game: &G, action: Action) {
        match self {
            Self::Rules(position) => drop(game.play(position, action)),
            Self::Recorded(_) => {}
        }
    }
}
