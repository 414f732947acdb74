/// Number of fields in a [`Control`].
pub(crate) const NUMBERS: usize = 7;

/// Control values that the members sum in every step, together with the contributions. Only the coordinator sets
/// `progress`, `publish` and `reform`, so each sum equals the coordinator's value. All whole numbers are small enough
/// to be exact in float32, which represents integers up to 2²⁴.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Control {
    /// Number of batches in the step: 0 or 1 per member.
    pub(crate) batches: f32,
    /// Number of positions in the batches.
    pub(crate) positions: f32,
    /// Passes over the replay window by the batches, summed over boards.
    pub(crate) window_passes: f32,
    /// Progress of the schedule, set by the coordinator.
    pub(crate) progress: f32,
    /// 1 if the weights after the step are to be published, otherwise 0. Set by the coordinator.
    pub(crate) publish: f32,
    /// Number of members that have not stored the next version number on disk.
    pub(crate) unready: f32,
    /// 1 if the members form the next group after the step, otherwise 0. Set by the coordinator.
    pub(crate) reform: f32,
}

impl Control {
    /// Returns the fields in declaration order.
    pub(crate) fn numbers(self) -> [f32; NUMBERS] {
        let Self { batches, positions, window_passes, progress, publish, unready, reform } = self;
        [batches, positions, window_passes, progress, publish, unready, reform]
    }

    /// Converts sums to control values; the inverse of [`numbers`](Self::numbers).
    pub(crate) fn of(numbers: &[f32]) -> Self {
        let numbers: [f32; NUMBERS] = numbers.try_into().expect("the sums have the numbers of their terms");
        let [batches, positions, window_passes, progress, publish, unready, reform] = numbers;
        Self { batches, positions, window_passes, progress, publish, unready, reform }
    }

    /// Returns true if all members publish the weights after the step.
    pub(crate) fn publishes(self) -> bool {
        self.publish > 0.0 && self.unready == 0.0
    }
}
