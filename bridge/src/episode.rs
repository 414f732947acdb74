/// The most episodes that an environment may lose in a row by its own failure.
const LOSSES_IN_A_ROW_MAX: u32 = 10;

/// The episode of one environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Episode {
    pub(crate) phase: Phase,
    /// The number of steps.
    pub(crate) steps: usize,
    /// The number of episodes that were lost since the last one that ended, by failures of this environment.
    losses_in_a_row: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// None is under way.
    Idle,
    UnderWay,
    /// It was under way when the process failed; the next step reports that.
    Lost,
}

impl Episode {
    pub(crate) const IDLE: Self = Self { phase: Phase::Idle, steps: 0, losses_in_a_row: 0 };

    pub(crate) fn begin(&mut self) {
        (self.phase, self.steps) = (Phase::UnderWay, 0);
    }

    /// Ends the episode by its outcome.
    pub(crate) fn end(&mut self) {
        (self.phase, self.losses_in_a_row) = (Phase::Idle, 0);
    }

    /// Ends the episode by a failure of its environment.
    pub(crate) fn fail(&mut self) {
        self.phase = Phase::Idle;
        self.losses_in_a_row += 1;
    }

    /// Returns true if the environment has failed so often that it is not used any more.
    pub(crate) fn is_out_of_use(&self) -> bool {
        self.losses_in_a_row >= LOSSES_IN_A_ROW_MAX
    }
}
