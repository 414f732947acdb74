/// Number of fields in a [`Control`].
pub(crate) const NUMBERS: usize = 6;

/// Values that are summed over the members in every step, in addition to the contributions. Only the coordinator sets
/// `progress`, `publish` and `reform`, so the sums equal the coordinator's values. All are small: a float32 is exact
/// up to 2²⁴.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Control {
    /// Batches in the step: 0 or 1 from each member.
    pub(crate) batches: f32,
    /// Positions in the batches.
    pub(crate) positions: f32,
    /// Position in the schedule.
    pub(crate) progress: f32,
    /// 1 if the weights after the step are to be published, else 0.
    pub(crate) publish: f32,
    /// Members that could not note the next version number.
    pub(crate) unready: f32,
    /// 1 if the members form the next group after the step, else 0.
    pub(crate) reform: f32,
}

impl Control {
    /// Returns the fields, in declaration order.
    pub(crate) fn numbers(self) -> [f32; NUMBERS] {
        let Self { batches, positions, progress, publish, unready, reform } = self;
        [batches, positions, progress, publish, unready, reform]
    }

    /// Converts the sums; the inverse of [`numbers`](Self::numbers).
    pub(crate) fn of(numbers: &[f32]) -> Self {
        let numbers: [f32; NUMBERS] = numbers.try_into().expect("the sums have the numbers of their terms");
        let [batches, positions, progress, publish, unready, reform] = numbers;
        Self { batches, positions, progress, publish, unready, reform }
    }

    /// Returns true if the members publish the weights after the step.
    pub(crate) fn publishes(self) -> bool {
        self.publish > 0.0 && self.unready == 0.0
    }
}
