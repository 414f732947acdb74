use std::any::Any;
use std::collections::VecDeque;

use ::experience::{StepKind, Trajectory, TrajectoryId};
use ::selfplay::FinishedEpisode;
use game::Game;

/// The form in which the experience of finished games is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Experience {
    /// The form of the replay server: actions and the results of the searches; planes are computed when they are
    /// trained on.
    #[default]
    Compact,
    /// Observation, search policy over all actions, and result as float32, ready to be trained on.
    Dense,
}

/// The maximum number of positions whose experience is kept.
const POSITIONS_MAX: usize = 50_000;

/// The newest experience of a thread.
pub(super) struct Kept {
    experience: Experience,
    /// The episodes, held only for the memory they take, each with its bytes and positions.
    episodes: VecDeque<(Box<dyn Any + Send>, usize, usize)>,
}

impl Kept {
    pub(super) fn new(experience: Experience) -> Self {
        Self { experience, episodes: VecDeque::new() }
    }

    /// Keeps an episode, and drops the oldest ones beyond the limit.
    ///
    /// # Errors
    /// If the episode is invalid under the rules.
    pub(super) fn keep<G: Game>(&mut self, game: &G, episode: FinishedEpisode) -> anyhow::Result<()> {
        let positions = episode.steps.len();
        let (held, bytes): (Box<dyn Any + Send>, usize) = match self.experience {
            Experience::Compact => {
                let id = TrajectoryId { actor: 0, epoch: 0, sequence: episode.number };
                let trajectory = Trajectory::of_episode(id, &game.spec().name, &episode.steps, episode.facts)?;
                let bytes = trajectory.bytes();
                (Box::new(trajectory), bytes)
            }
            Experience::Dense => {
                let floats = dense(game, &episode)?;
                let bytes = floats.len() * size_of::<f32>();
                (Box::new(floats), bytes)
            }
        };
        self.episodes.push_back((held, bytes, positions));
        while self.size().1 > POSITIONS_MAX {
            self.episodes.pop_front();
        }
        Ok(())
    }

    /// Returns the bytes and positions of all kept episodes.
    pub(super) fn size(&self) -> (usize, usize) {
        self.episodes.iter().fold((0, 0), |sum, (_, bytes, positions)| (sum.0 + bytes, sum.1 + positions))
    }
}

/// Returns, for each position, the observation `[C, H, W]`, the search policy `[A]` and the result `[3]` of the player
/// to move.
fn dense<G: Game>(game: &G, episode: &FinishedEpisode) -> anyhow::Result<Vec<f32>> {
    let spec = game.spec();
    let (observation, actions) = (spec.observation.len(), spec.actions);
    let row = observation + actions + 3;
    let mut floats = vec![0.0; episode.steps.len() * row];
    let mut position = game.start();
    for (step, row) in episode.steps.iter().zip(floats.chunks_exact_mut(row)) {
        let (planes, targets) = row.split_at_mut(observation);
        game.observe(&position, planes);
        let (policy, result) = targets.split_at_mut(actions);
        if let StepKind::Full { policy: entries, .. } = &step.kind {
            entries.iter().for_each(|entry| policy[entry.action.index()] = entry.probability);
        }
        let value = episode.facts.outcome.value_for(game.to_move(&position));
        result.copy_from_slice(&[value.max(0.0), 1.0 - value.abs(), (-value).max(0.0)]);
        game.try_play(&mut position, step.action)?;
    }
    Ok(floats)
}

#[cfg(test)]
mod tests {
    use ::selfplay::{Episodes, Settings};
    use games::ConnectFour;
    use inference::Hashing;

    use super::*;

    fn episodes(wanted: usize) -> Vec<FinishedEpisode> {
        let game = ConnectFour::new();
        let settings = Settings { games: 4, full_simulations: 8, full_search_probability: 1.0, ..Settings::default() };
        let mut evaluator = Hashing::new(game.spec().observation, 1);
        let mut all = Episodes::new(game, settings, 1.0, 1);
        let mut finished = Vec::new();
        while finished.len() < wanted {
            all.advance(&mut evaluator, None).unwrap();
            finished.extend(all.drain_finished());
        }
        finished
    }

    #[test]
    fn dense_experience_is_planes_policy_and_result_of_every_position() {
        let game = ConnectFour::new();
        let episode = episodes(1).remove(0);
        let floats = dense(&game, &episode).unwrap();
        let row = 3 * 42 + 7 + 3;
        assert_eq!(floats.len(), episode.steps.len() * row);
        let mut position = game.start();
        for (step, row) in episode.steps.iter().zip(floats.chunks_exact(row)) {
            let mut planes = vec![0.0; 126];
            game.observe(&position, &mut planes);
            assert_eq!(row[..126], planes);
            assert!((row[126..133].iter().sum::<f32>() - 1.0).abs() < 1e-5);
            assert_eq!(row[133..].iter().sum::<f32>(), 1.0);
            game.play(&mut position, step.action);
        }
    }

    #[test]
    fn compact_experience_takes_less_than_dense() {
        let game = ConnectFour::new();
        let mut kept = [Experience::Compact, Experience::Dense].map(Kept::new);
        for episode in episodes(8) {
            kept.iter_mut().for_each(|kept| kept.keep(&game, episode.clone()).unwrap());
        }
        let [compact, dense] = kept.map(|kept| kept.size());
        assert_eq!(compact.1, dense.1);
        assert_eq!(dense.0, dense.1 * 136 * 4);
        assert!(compact.0 * 100 <= dense.0 * 15, "{compact:?} {dense:?}");
    }
}
