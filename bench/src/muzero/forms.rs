//! The bytes of a step in each form in which a replay can hold the same episodes.

use experience::{Element, ObservationLayout, Observations, Trajectory, TrajectoryId};
use game::Game;
use inference::LatentModel;
use selfplay::{FinishedEpisode, LatentEpisodes};

use super::replay::{Form, Replay};
use super::workload::{DISCOUNT, Workload};
use crate::report::{Report, Unit};

pub(super) const SECTION: &str = "replay bytes per step";
pub(super) const COMPACT: &str = "seed and actions";
pub(super) const STORED: &str = "compressed observations";
pub(super) const DENSE: &str = "float32";

/// Environments and simulations of the episodes.
const ENVIRONMENTS: usize = 64;
const SIMULATIONS: u32 = 2;

/// Adds the bytes of the forms, over at least `workload.positions` positions.
///
/// # Errors
/// A model that fails.
pub(super) fn add<G: Game>(
    report: &mut Report,
    game: &G,
    workload: &Workload,
    model: &mut dyn LatentModel,
) -> anyhow::Result<()> {
    let settings = selfplay::Settings { full_simulations: SIMULATIONS, ..workload.settings(ENVIRONMENTS) };
    let mut episodes = LatentEpisodes::new(game.clone(), settings, DISCOUNT, workload.seed);
    let mut finished: Vec<FinishedEpisode> = Vec::new();
    let mut positions = 0;
    while positions < workload.positions {
        episodes.advance(model)?;
        for episode in episodes.drain_finished() {
            positions += episode.steps.len();
            finished.push(episode);
        }
    }
    let mut replays = [Form::Compact, Form::Dense].map(|form| Replay::new(form, usize::MAX));
    let mut stored_bytes = 0;
    for (sequence, episode) in (0..).zip(&finished) {
        let id = TrajectoryId { actor: 0, epoch: 0, sequence };
        for replay in replays.iter_mut().flatten() {
            replay.insert(game, workload.unroll(), id, episode)?;
        }
        stored_bytes += recorded(game, id, episode)?.bytes();
    }
    let per_step = |bytes: usize| bytes as f64 / positions as f64;
    let [compact, dense] = replays.map(|replay| replay.map(|replay| replay.size().bytes));
    let (compact, dense) = (per_step(compact?), per_step(dense?));
    for (form, bytes) in [(COMPACT, compact), (STORED, per_step(stored_bytes)), (DENSE, dense)] {
        report
            .at(SECTION, &[("game", &game.spec().name), ("form", &form)])
            .value("bytes per step", Unit::Bytes, bytes)
            .value("fewer than float32", Unit::Share, 1.0 - bytes / dense);
    }
    Ok(())
}

/// The trajectory of an episode with all observations, as of an environment that rules cannot recompute: bytes where
/// every value is one of 256 shares of 1, else float32.
fn recorded<G: Game>(game: &G, id: TrajectoryId, episode: &FinishedEpisode) -> anyhow::Result<Trajectory> {
    let frame_values = game.spec().observation.len();
    let seen = observations(game, episode)?;
    let element = if seen.iter().all(|value| *value == 0.0 || *value == 1.0) { Element::U8 } else { Element::F32 };
    let mut observations = Observations::new(ObservationLayout { element, frame_values, stack: 1 })?;
    for observation in seen.chunks_exact(frame_values) {
        observations.push(observation)?;
    }
    Ok(Trajectory::of_recorded(id, &game.spec().name, &episode.steps, episode.facts, observations)?)
}

/// The observations of all positions of an episode, one after another.
fn observations<G: Game>(game: &G, episode: &FinishedEpisode) -> anyhow::Result<Vec<f32>> {
    let len = game.spec().observation.len();
    let mut position = game.start_from(episode.facts.seed);
    let mut all = vec![0.0; (episode.steps.len() + 1) * len];
    let mut rows = all.chunks_exact_mut(len);
    for (step, row) in episode.steps.iter().zip(&mut rows) {
        game.observe(&position, row);
        game.try_play(&mut position, step.action)?;
    }
    rows.for_each(|row| game.observe(&position, row));
    Ok(all)
}
