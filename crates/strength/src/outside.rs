//! Plays evaluation episodes in environments that run outside this process.

use std::ops::ControlFlow;
use std::sync::Arc;

use game::{Environments, Game, Play, Start, Started, Taken};
use games::{AnyGame, AnyPosition};

use crate::contestant::Contestant;
use crate::returns::{EpisodeReturn, Error};

/// Maximum number of attempts at an evaluation episode, if the environments keep failing.
const TRIES_MAX: u32 = 10;

/// A function that starts the environments of an evaluation, at least one per episode.
pub type StartEnvironments = Box<dyn FnMut() -> Result<Box<dyn Environments>, bridge::Error> + Send>;

/// The environments of evaluations, started on first use, and restarted after an incomplete evaluation.
pub struct Outside<G: Game> {
    start: StartEnvironments,
    /// Environments that are all idle.
    idle: Option<Box<dyn Environments>>,
    observed: fn(Arc<[f32]>) -> G::Position,
}

impl Outside<AnyGame> {
    /// Creates environments that `start` will start on first use.
    #[must_use]
    pub fn new(start: StartEnvironments) -> Self {
        Self { start, idle: None, observed: AnyPosition::observed }
    }
}

impl<G: Game> Outside<G> {
    /// Plays like [`play`], and starts the environments if necessary.
    pub fn play(
        &mut self,
        game: &G,
        contestant: &mut dyn Contestant<G>,
        seeds: impl IntoIterator<Item = u64>,
        pause: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<Vec<EpisodeReturn>>, Error> {
        let mut environments = match self.idle.take() {
            Some(idle) => idle,
            None => (self.start)().map_err(|source| Error::Start { game: game.spec().name.clone(), source })?,
        };
        let played = play_observed(game, self.observed, &mut *environments, contestant, seeds, pause)?;
        self.idle = played.is_some().then_some(environments);
        Ok(played)
    }
}

/// Plays one episode per seed with the contestant's actions, all concurrently, like
/// [`returns::play`](crate::returns::play) by the rules of a game; returns one result per seed. Episode i is played in
/// environment i; all environments must be idle. A lost episode is replaced by an episode with a seed derived from the
/// lost seed: a fault may depend on the seed.
///
/// # Errors
/// The network or the environments fail, or an episode is lost repeatedly.
///
/// # Panics
/// There are more seeds than environments.
pub fn play(
    game: &AnyGame,
    environments: &mut dyn Environments,
    contestant: &mut dyn Contestant<AnyGame>,
    seeds: impl IntoIterator<Item = u64>,
    pause: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Vec<EpisodeReturn>>, Error> {
    play_observed(game, AnyPosition::observed, environments, contestant, seeds, pause)
}

/// One evaluation episode.
struct Episode {
    seed: u64,
    tries: u32,
    sum: EpisodeReturn,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    UnderWay,
    Over,
}

impl Episode {
    const NOTHING: EpisodeReturn = EpisodeReturn { sum: 0.0, steps: 0 };

    /// Records a lost attempt, and sets another seed for the next attempt.
    fn lose(&mut self, game: &str) -> Result<(), Error> {
        (self.phase, self.sum, self.tries) = (Phase::Waiting, Self::NOTHING, self.tries + 1);
        if self.tries >= TRIES_MAX {
            return Err(Error::Lost { game: game.to_owned(), seed: self.seed, tries: self.tries });
        }
        self.seed = selfplay::evaluation_seed(self.seed, self.tries.into());
        Ok(())
    }
}

fn play_observed<G: Game>(
    game: &G,
    observed: fn(Arc<[f32]>) -> G::Position,
    environments: &mut dyn Environments,
    contestant: &mut dyn Contestant<G>,
    seeds: impl IntoIterator<Item = u64>,
    pause: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Vec<EpisodeReturn>>, Error> {
    let (name, values) = (&game.spec().name, game.spec().observation.len());
    let episode = |seed| Episode { seed, tries: 0, sum: Episode::NOTHING, phase: Phase::Waiting };
    let mut episodes: Vec<Episode> = seeds.into_iter().map(episode).collect();
    assert!(episodes.len() <= environments.len(), "each episode has an environment");
    let (mut starts, mut started, mut plays, mut taken) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let of = |episodes: &[Episode], phase| -> Vec<usize> {
        (0..episodes.len()).filter(|&index| episodes[index].phase == phase).collect()
    };
    while episodes.iter().any(|episode| episode.phase != Phase::Over) {
        starts.clear();
        let waiting = of(&episodes, Phase::Waiting).into_iter();
        starts.extend(waiting.map(|environment| Start { environment, seed: episodes[environment].seed }));
        if !starts.is_empty() {
            environments.begin(&starts, &mut started)?;
            for (Start { environment, .. }, started) in starts.iter().zip(&started) {
                match started {
                    Started::Now => episodes[*environment].phase = Phase::UnderWay,
                    // The process is being replaced, or the first observation of this seed was refused.
                    Started::NotYet => {
                        let (seed, tries) = (episodes[*environment].seed, episodes[*environment].tries);
                        episodes[*environment].seed = selfplay::evaluation_seed(seed, tries.into());
                    }
                }
            }
        }
        let running = of(&episodes, Phase::UnderWay);
        if running.is_empty() {
            let waiting = of(&episodes, Phase::Waiting);
            // Starting episodes blocks while an environment may recover, so that no waiting episode can be played.
            let seed = waiting.first().map_or(0, |&index| episodes[index].seed);
            return Err(Error::Lost { game: name.clone(), seed, tries: 0 });
        }
        let observation = |&environment: &usize| {
            let mut observation = vec![0.0; values];
            environments.observe(environment, &mut observation);
            observed(observation.into())
        };
        let positions: Vec<G::Position> = running.iter().map(observation).collect();
        let actions = contestant.choose(game, &positions)?;
        plays.clear();
        plays.extend(running.iter().zip(actions).map(|(&environment, action)| Play { environment, action }));
        environments.step(&plays, &mut taken)?;
        for (play, taken) in plays.iter().zip(&taken) {
            let episode = &mut episodes[play.environment];
            match *taken {
                Taken::Lost => episode.lose(name)?,
                Taken::Step { reward, outcome } => {
                    episode.sum.sum += f64::from(reward);
                    episode.sum.steps += 1;
                    if outcome.is_some() {
                        episode.phase = Phase::Over;
                    }
                }
            }
        }
        if pause().is_break() {
            return Ok(None);
        }
    }
    Ok(Some(episodes.into_iter().map(|episode| episode.sum).collect()))
}

#[cfg(test)]
mod tests {
    use game::{Action, EnvironmentsError, ObservationRange, ObservationShape, Outcome, Player, Spec};
    use games::recorded::Described;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::contestant::RandomMover;

    /// Environments with episodes of 1 to 10 steps, by seed, and reward 1. Some episodes are lost.
    struct Counting {
        spec: Spec,
        /// Last seed that each environment started from.
        seeds: Vec<u64>,
        left: Vec<u64>,
        /// Number of steps between two lost episodes.
        lost_every: u64,
        steps: u64,
    }

    impl Environments for Counting {
        fn spec(&self) -> &Spec {
            &self.spec
        }

        fn len(&self) -> usize {
            self.left.len()
        }

        fn begin(&mut self, starts: &[Start], started: &mut Vec<Started>) -> Result<(), EnvironmentsError> {
            for &Start { environment, seed } in starts {
                (self.seeds[environment], self.left[environment]) = (seed, length(seed));
            }
            *started = vec![Started::Now; starts.len()];
            Ok(())
        }

        fn step(&mut self, plays: &[Play], taken: &mut Vec<Taken>) -> Result<(), EnvironmentsError> {
            taken.clear();
            for play in plays {
                self.steps += 1;
                self.left[play.environment] -= 1;
                let outcome = (self.left[play.environment] == 0).then_some(Outcome::Finished);
                let is_lost = self.steps.is_multiple_of(self.lost_every);
                taken.push(if is_lost { Taken::Lost } else { Taken::Step { reward: 1.0, outcome } });
            }
            Ok(())
        }

        fn observe(&self, environment: usize, values: &mut [f32]) {
            values.fill(self.left[environment] as f32);
        }

        fn legal_actions(&self, _: usize, actions: &mut Vec<Action>) {
            actions.clear();
            actions.push(Action(0));
        }

        fn to_move(&self, _: usize) -> Player {
            Player::First
        }
    }

    fn length(seed: u64) -> u64 {
        1 + seed % 10
    }

    const SEEDS: [u64; 3] = [5, 9, 2];

    /// Returns the seeds of finished episodes, with the episodes.
    fn played(lost_every: u64) -> Result<(Vec<u64>, Vec<EpisodeReturn>), Error> {
        let frame = ObservationShape { planes: 2, height: 1, width: 1 };
        let (name, range) = ("gym:Counting".to_owned(), ObservationRange::Finite);
        let game = Described { name, actions: 1, frame, stack: 1, range, steps_max: 50 }.environment().unwrap();
        let game = AnyGame::Recorded(game);
        let spec = game.spec().clone();
        let mut environments = Counting { spec, seeds: vec![0; 3], left: vec![0; 3], lost_every, steps: 0 };
        let mut contestant = RandomMover { rng: ChaCha8Rng::seed_from_u64(1) };
        let played = play(&game, &mut environments, &mut contestant, SEEDS, &mut || ControlFlow::Continue(()))?;
        Ok((environments.seeds, played.unwrap()))
    }

    #[test]
    fn every_seed_has_the_return_of_its_episode_or_of_one_in_its_place_if_that_is_lost() {
        for lost_every in [u64::MAX, 7, 11] {
            let (seeds, episodes) = played(lost_every).unwrap();
            assert_eq!(seeds == SEEDS, lost_every == u64::MAX, "{lost_every}");
            for (seed, episode) in seeds.into_iter().zip(episodes) {
                assert_eq!((episode.sum, episode.steps as u64), (length(seed) as f64, length(seed)));
            }
        }
    }

    #[test]
    fn an_episode_that_is_lost_again_and_again_ends_the_evaluation() {
        let error = played(1).unwrap_err();
        assert!(matches!(&error, Error::Lost { tries: TRIES_MAX, .. }), "{error}");
    }
}
