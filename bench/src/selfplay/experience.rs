use std::any::Any;
use std::collections::VecDeque;

use ::experience::{StepKind, Trajectory, TrajectoryId};
use ::selfplay::FinishedEpisode;
use game::Game;
use serde::{Deserialize, Serialize};

/// The form in which the experience of finished games is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Experience {
    /// As the replay server keeps it: actions and what the searches concluded; planes are made when they are trained
    /// on.
    #[default]
    Compact,
    /// Observation, search policy over all actions and result as float32, ready to be trained on.
    Dense,
}

/// Positions whose experience is kept at most.
const POSITIONS_MAX: usize = 50_000;

/// The newest experience of a thread.
pub(super) struct Kept {
    experience: Experience,
    episodes: VecDeque<Episode>,
    bytes: usize,
    positions: usize,
}

struct Episode {
    /// Held for the memory it takes.
    _held: Box<dyn Any>,
    bytes: usize,
    positions: usize,
}

impl Kept {
    pub(super) fn new(experience: Experience) -> Self {
        Self { experience, episodes: VecDeque::new(), bytes: 0, positions: 0 }
    }

    /// Keeps an episode; the oldest leave.
    ///
    /// # Errors
    /// If the rules refuse what was played.
    pub(super) fn keep<G: Game>(&mut self, game: &G, episode: FinishedEpisode) -> anyhow::Result<()> {
        let positions = episode.steps.len();
        let (held, bytes) = match self.experience {
            Experience::Compact => {
                let id = TrajectoryId { actor: 0, epoch: 0, sequence: episode.number };
                let FinishedEpisode { steps, outcome, .. } = episode;
                let trajectory = Trajectory::of(id, &game.spec().name, &steps, outcome)?;
                let bytes = trajectory.bytes();
                (Box::new(trajectory) as Box<dyn Any>, bytes)
            }
            Experience::Dense => {
                let floats = dense(game, &episode)?;
                let bytes = floats.len() * size_of::<f32>();
                (Box::new(floats) as Box<dyn Any>, bytes)
            }
        };
        self.bytes += bytes;
        self.positions += positions;
        self.episodes.push_back(Episode { _held: held, bytes, positions });
        while self.positions > POSITIONS_MAX
            && let Some(oldest) = self.episodes.pop_front()
        {
            self.bytes -= oldest.bytes;
            self.positions -= oldest.positions;
        }
        Ok(())
    }

    /// Bytes and positions.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.bytes, self.positions)
    }
}

/// Of each position the observation `[C, H, W]`, the search policy `[A]` and the result `[3]` of the player to move.
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
        let value = episode.outcome.value_for(game.to_move(&position));
        result.copy_from_slice(&[value.max(0.0), 1.0 - value.abs(), (-value).max(0.0)]);
        game.try_play(&mut position, step.action)?;
    }
    Ok(floats)
}

#[cfg(test)]
mod tests {
    use ::selfplay::{Episodes, Settings};
    use games::ConnectFour;
    use inference::testing::Hashing;

    use super::*;

    fn episodes(wanted: usize) -> Vec<FinishedEpisode> {
        let game = ConnectFour::new();
        let settings = Settings { games: 4, full_simulations: 8, full_search_probability: 1.0, ..Settings::default() };
        let mut evaluator = Hashing::new(game.spec().observation, 1);
        let mut all = Episodes::new(game, settings, 1);
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
