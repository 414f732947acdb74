use experience::Sample;

use super::TableStats;

/// Samples drawn at once, and the table at that moment.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleBatch {
    /// The samples, as many as were requested.
    pub samples: Vec<Sample>,
    /// The table they were drawn from.
    pub table: TableStats,
}
