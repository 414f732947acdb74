use serde::{Deserialize, Serialize};

/// Activations that the backward pass recomputes instead of keeping them in memory (Chen et al. 2016).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// No recomputation: all activations are kept from the forward pass to the backward pass.
    #[default]
    None,
    /// Recomputes all activations within segments of residual blocks; only segment outputs are kept. Batch norms keep
    /// the statistics of the forward pass, so that recomputed activations are equal and running statistics are updated
    /// once.
    Blocks,
}

impl Recompute {
    /// Returns the number of blocks per segment in a tower of `blocks` blocks, at least 1.
    ///
    /// Each of N / k segments keeps one output. The backward pass through a segment needs four activations in each of k
    /// blocks. The memory, N / k + 4 k activations, is minimal for k = √N / 2.
    #[must_use]
    pub fn segment_blocks(blocks: usize) -> usize {
        (((blocks as f64).sqrt() / 2.0).round() as usize).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::Recompute;

    #[test]
    fn a_segment_has_half_the_root_of_the_blocks() {
        assert_eq!([0, 1, 6, 10, 18, 34, 50].map(Recompute::segment_blocks), [1, 1, 1, 2, 2, 3, 4]);
    }

    #[test]
    fn no_other_length_of_segments_keeps_clearly_less() {
        let kept = |blocks: usize, segment: usize| blocks.div_ceil(segment) + 4 * segment;
        for blocks in 1..=64 {
            let least = (1..=blocks).map(|segment| kept(blocks, segment)).min().unwrap();
            assert!(kept(blocks, Recompute::segment_blocks(blocks)) <= least + 2, "{blocks} blocks");
        }
    }
}
