//! pUCT: value plus an exploration bonus that follows the prior.

use crate::value_range::Scale;

/// What is the same for all edges of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// [`ExplorationFactors::at`] the visits of the node.
    pub(crate) factor: f32,
    /// The value of an unvisited edge, already rescaled.
    pub(crate) first_play: f32,
    pub(crate) scale: Scale,
}

/// Scores every edge of a node by pUCT and returns the best available; ties go to the lowest action, so a seed fixes
/// the tree.
///
/// `Q + P · √N / (1 + n) · (c_init + ln((N + c_base + 1) / c_base))`, Schrittwieser et al. 2020, appendix B. `N` counts
/// the visits of the node, its own evaluation among them as in AlphaZero's pseudocode: before any child is visited the
/// prior decides, not the order. Unvisited children take the first-play value, not zero: with zero, a losing root looks
/// at every move before it looks twice at any.
#[inline]
pub(crate) fn best(values: &[f32], counts: &[f32], priors: &[f32], terms: Terms) -> Option<usize> {
    let mut best = None;
    let mut best_score = f32::NEG_INFINITY;
    for (at, ((&value, &count), &prior)) in values.iter().zip(counts).zip(priors).enumerate() {
        let q = if value.is_nan() { terms.first_play } else { terms.scale.apply(value) };
        let score = q + prior / (1.0 + count) * terms.factor;
        if score > best_score {
            best_score = score;
            best = Some(at);
        }
    }
    best
}

/// `√N · (c_init + ln((N + c_base + 1) / c_base))` for every N; the small ones are looked up.
#[derive(Debug)]
pub(crate) struct ExplorationFactors {
    c_base: f32,
    c_init: f32,
    table: Vec<f32>,
}

impl ExplorationFactors {
    /// Most nodes of most trees have fewer visits; more would not stay in the first-level cache.
    const TABLE_LEN: u16 = 1024;

    pub(crate) fn new(c_base: f32, c_init: f32) -> Self {
        let table = (0..Self::TABLE_LEN).map(|visits| factor(c_base, c_init, f32::from(visits))).collect();
        Self { c_base, c_init, table }
    }

    #[inline]
    pub(crate) fn at(&self, visits: u32) -> f32 {
        self.table.get(visits as usize).copied().unwrap_or_else(|| factor(self.c_base, self.c_init, visits as f32))
    }
}

fn factor(c_base: f32, c_init: f32, visits: f32) -> f32 {
    visits.sqrt() * (c_init + ((visits + c_base + 1.0) / c_base).ln())
}

#[cfg(test)]
mod tests;
