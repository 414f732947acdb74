/// The number of numbers of a [`Control`].
pub(crate) const NUMBERS: usize = 6;

/// The numbers beside the contributions that are summed over the members in every step. Only the coordinator sets
/// `progress`, `publish` and `reform`, so that their sums are its numbers. All are small: a float32 is exact up to 2²⁴.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Control {
    /// The batches in the step: 0 or 1 of each member.
    pub(crate) batches: f32,
    /// The positions of the batches.
    pub(crate) positions: f32,
    /// The position in the schedule.
    pub(crate) progress: f32,
    /// 1 if the weights after the step are to be published, else 0.
    pub(crate) publish: f32,
    /// The members that could not note the number of the next weights.
    pub(crate) unready: f32,
    /// 1 if the members form the next group after the step, else 0.
    pub(crate) reform: f32,
}

impl Control {
    /// Returns the numbers.
    pub(crate) fn numbers(self) -> [f32; NUMBERS] {
        let Self { batches, positions, progress, publish, unready, reform } = self;
        [batches, positions, progress, publish, unready, reform]
    }

    /// Reads the sums.
    pub(crate) fn of(numbers: &[f32]) -> Self {
        let numbers: [f32; NUMBERS] = numbers.try_into().expect("the sums have the numbers of their terms");
        let [batches, positions, progress, publish, unready, reform] = numbers;
        Self { batches, positions, progress, publish, unready, reform }
    }

    /// Returns whether the members publish the weights after the step.
    pub(crate) fn publishes(self) -> bool {
        self.publish > 0.0 && self.unready == 0.0
    }
}
