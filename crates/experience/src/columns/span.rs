/// The range of steps that columns describe, within the plies of an episode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) plies: usize,
    /// The first step described.
    pub(crate) ply: usize,
    /// The number of steps described, at least one.
    pub(crate) steps: usize,
}

impl Span {
    /// Returns true if the last step described is the last of the episode.
    pub(crate) fn reaches_end(self) -> bool {
        self.ply + self.steps == self.plies
    }
}
