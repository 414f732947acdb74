/// The activations that are computed again in the backward pass instead of being kept (Chen et al. 2016).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recompute {
    /// None: all are kept from the forward pass to the backward pass.
    #[default]
    None,
    /// Those within segments of residual blocks, of which only the outputs are kept. Batch norms keep their statistics,
    /// so that the same numbers are computed again and running statistics move once.
    Blocks,
}

impl Recompute {
    /// The number of blocks of a segment in a tower of `blocks` blocks, at least 1.
    ///
    /// Each of the N / k segments keeps one output, and while one is differentiated the four activations of each of its
    /// k blocks are there, so that N / k + 4 k is least at k = √N / 2.
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
