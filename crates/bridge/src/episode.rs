/// Maximum number of consecutive episodes that an environment may lose by failures.
const LOSSES_IN_A_ROW_MAX: u32 = 10;

/// The episode of one environment, and consecutive failures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Episode {
    pub(crate) phase: Phase,
    /// Number of steps in the episode.
    pub(crate) steps: usize,
    /// Number of episodes lost by failures of this environment since the last finished episode.
    losses_in_a_row: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No episode is in progress.
    Idle,
    UnderWay,
    /// The episode was in progress when the process failed; the next step reports the loss.
    Lost,
}

impl Episode {
    pub(crate) const IDLE: Self = Self { phase: Phase::Idle, steps: 0, losses_in_a_row: 0 };

    pub(crate) fn begin(&mut self) {
        (self.phase, self.steps) = (Phase::UnderWay, 0);
    }

    /// Ends the episode by an outcome.
    pub(crate) fn end(&mut self) {
        (self.phase, self.losses_in_a_row) = (Phase::Idle, 0);
    }

    /// Ends the episode by a failure of the environment.
    pub(crate) fn fail(&mut self) {
        self.phase = Phase::Idle;
        self.losses_in_a_row += 1;
    }

    /// Returns true if the environment has failed too often and is no longer used.
    pub(crate) fn is_out_of_use(&self) -> bool {
        self.losses_in_a_row >= LOSSES_IN_A_ROW_MAX
    }
}
