/// The number of numbers of a [`Control`].
pub(crate) const NUMBERS: usize = 5;

/// The numbers beside the contributions that are summed over the members in every step. Only the coordinator sets the
/// last three, so that their sums are its numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Control {
    /// The batches in the step: 0 or 1 of each member.
    pub(crate) batches: f32,
    /// The positions of the batches. Exact up to 2²⁴.
    pub(crate) positions: f32,
    /// The position in the schedule.
    pub(crate) progress: f32,
    /// The version under which the weights after the step are published; 0: they are not. Exact up to 2²⁴.
    pub(crate) publish: f32,
    /// 1 if the members form the next group after the step, else 0.
    pub(crate) reform: f32,
}

impl Control {
    /// Returns the numbers.
    pub(crate) fn numbers(self) -> [f32; NUMBERS] {
        let Self { batches, positions, progress, publish, reform } = self;
        [batches, positions, progress, publish, reform]
    }

    /// Reads the sums.
    pub(crate) fn of(numbers: &[f32]) -> Self {
        let numbers: [f32; NUMBERS] = numbers.try_into().expect("the sums have the numbers of their terms");
        let [batches, positions, progress, publish, reform] = numbers;
        Self { batches, positions, progress, publish, reform }
    }
}
