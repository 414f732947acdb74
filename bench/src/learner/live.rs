//! A learner process beside a replay server that is full of Connect Four.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fleet::Role;
use training_cpu::Trainer;

use super::case::Case;
use crate::learner_process::{LearnerProcess, Lost, filled_server};
use crate::network::NetworkSize;
use crate::replay::games::Games;
use crate::server_process::ServerProcess;
use crate::training_run::Window;

/// Positions that the replay server holds.
const POSITIONS: u64 = 200_000;
/// Steps of a trajectory.
const STEPS: usize = 30;
/// The wait between the first training step and the measurement.
const WARM_UP: Duration = Duration::from_secs(5);
/// Height and width of Connect Four's board.
const BOARD: [usize; 2] = [6, 7];

/// The speed of a learner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Speed {
    /// Positions that were trained on, per second.
    pub(super) positions_per_second: f64,
    /// The duration of the measurement.
    pub(super) seconds: f64,
    pub(super) lost: Lost,
}

/// A replay server, which is started and filled for the first case, and the settings of learners beside it.
#[derive(Debug)]
pub(super) struct Live {
    seed: u64,
    time: Duration,
    folder: PathBuf,
    server: Option<ServerProcess>,
    learners: usize,
}

/// Returns whether the learner can train this case on games of Connect Four.
pub(super) fn is_possible(case: &Case) -> bool {
    let NetworkSize { height, width, .. } = case.network;
    [height, width] == BOARD
}

impl Live {
    /// Measurements of this duration, with files in `folder`.
    pub(super) fn new(seed: u64, time: Duration, folder: &Path) -> Self {
        Self { seed, time, folder: folder.to_owned(), server: None, learners: 0 }
    }

    /// Measures a learner that trains with the kernels of the CPU.
    ///
    /// # Errors
    /// A case that it cannot train, a process that dies or is not built.
    pub(super) fn measure(&mut self, case: Case) -> anyhow::Result<Speed> {
        ensure!(is_possible(&case), "the replay server holds Connect Four, whose board is 6x7");
        let settings = training::TrainerSettings { precision: case.precision, ..Default::default() };
        Trainer::check(&settings)?;
        let endpoint = self.endpoint()?;
        self.learners += 1;
        let folder = self.folder.join(format!("learner-{}", self.learners));
        std::fs::create_dir(&folder).with_context(|| format!("make the folder {}", folder.display()))?;
        let mut learner = LearnerProcess::start(&sets(case, self.seed), &endpoint, &folder)?;
        learner.wait_for_the_first_step()?;
        learner.run_for(WARM_UP)?;
        let (began, begin) = (Instant::now(), learner.read()?);
        learner.run_for(self.time)?;
        let (seconds, end) = (began.elapsed().as_secs_f64(), learner.read()?);
        Ok(speed(&Window { seconds, begin: vec![begin], end: vec![end] }))
    }

    fn endpoint(&mut self) -> anyhow::Result<String> {
        if let Some(server) = &self.server {
            return Ok(server.endpoint.clone());
        }
        let games = Games::new(STEPS, self.seed)?;
        let server = filled_server(&self.folder, &games, POSITIONS)?;
        Ok(self.server.insert(server).endpoint.clone())
    }
}

/// The settings of the learner.
fn sets(case: Case, seed: u64) -> Vec<String> {
    let Case { network: NetworkSize { blocks, channels, .. }, batch, precision, threads } = case;
    vec![
        format!("run.seed={seed}"),
        format!("network.blocks={blocks}"),
        format!("network.channels={channels}"),
        format!("learner.precision={precision}"),
        format!("learner.batch_size={batch}"),
        format!("learner.threads={threads}"),
    ]
}

fn speed(window: &Window) -> Speed {
    let positions = window.growth(Role::Learner, "zerofleet_learner_positions_total", &[]).unwrap_or(0.0);
    Speed { positions_per_second: positions / window.seconds, seconds: window.seconds, lost: Lost::of(window) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training_run::tests::learner;

    #[test]
    fn the_speed_of_a_learner_is_the_growth_of_its_metrics() {
        let text = |scale: u32| {
            [
                ("positions_total", 2_560),
                ("seconds_total{phase=\"wait\"}", 1),
                ("seconds_total{phase=\"train\"}", 7),
                ("seconds_total{phase=\"publish\"}", 2),
            ]
            .map(|(name, value)| format!("zerofleet_learner_{name} {}\n", value * scale))
            .concat()
        };
        let window = Window { seconds: 10.0, begin: vec![learner(&text(1))], end: vec![learner(&text(2))] };
        let expected = Speed { positions_per_second: 256.0, seconds: 10.0, lost: Lost { waiting: 0.1, copying: 0.2 } };
        assert_eq!(speed(&window), expected);
    }
}
