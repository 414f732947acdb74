//! Batch sizes for the kernels.

/// Positions run through the network at once; a larger batch is split. Larger chunks gain nothing on a CPU, where the
/// tower's activations should stay in the cache, and little elsewhere.
pub(crate) const CHUNK: usize = 256;
/// [`CHUNK`] on an accelerator.
pub(crate) const CHUNK_ACCELERATED: usize = 4096;
/// Maximum positions of a batch; more are a bug in the caller's configuration.
pub(crate) const MAX_BATCH: usize = 16_384;

/// Returns the batch size to run for `positions`. The kernels need a set-up for every size, which they cache for a
/// limited number of sizes; eight sizes per octave bound that number and waste at most an eighth.
pub(crate) fn padded(positions: usize) -> usize {
    let granularity = (positions.next_power_of_two() / 16).max(1);
    positions.next_multiple_of(granularity)
}
