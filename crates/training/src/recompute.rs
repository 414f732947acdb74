/// Activations that the backward pass recomputes instead of reading them from memory (Chen et al. 2016).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recompute {
    /// None: all activations stay from the forward pass to the backward pass.
    #[default]
    None,
    /// All activations within segments of residual blocks; only segment outputs stay. Batch norms keep the statistics
    /// of the forward pass, so that the same numbers are recomputed and running statistics move once.
    Blocks,
}

impl Recompute {
    /// Returns the blocks per segment in a tower of `blocks` blocks, at least 1.
    ///
    /// Each of the N / k segments keeps one output. Differentiating a segment takes all four activations of the k
    /// blocks, so that N / k + 4 k is least at k = √N / 2.
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
