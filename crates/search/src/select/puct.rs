//! pUCT: value plus an exploration bonus that follows the prior.

use crate::edges::{LANES, Octet};
use crate::select::lanes::{Choice, fill, first_lane, greatest};
use crate::value_range::Rescale;

/// What is the same for all edges of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<R> {
    /// [`ExplorationFactors::at`] the visits of the node.
    pub(crate) factor: f32,
    /// The value of an unvisited edge, already rescaled.
    pub(crate) first_play: f32,
    pub(crate) scale: R,
}

/// Scores every edge of a node by pUCT and returns the best available; ties go to the lowest action, so a seed fixes
/// the tree.
///
/// `Q + P · √N / (1 + n) · (c_init + ln((N + c_base + 1) / c_base))`, Schrittwieser et al. 2020, appendix B. `N` counts
/// the visits of the node, its own evaluation among them as in AlphaZero's pseudocode: before any child is visited the
/// prior decides, not the order. Unvisited children take the first-play value, not zero: with zero, a losing root looks
/// at every move before it looks twice at any.
#[inline(always)]
pub(crate) fn best(octets: &[Octet], terms: Terms<impl Rescale>) -> Option<Choice> {
    let (mut best, mut best_score) = (None, f32::NEG_INFINITY);
    let Terms { factor, first_play, scale } = terms;
    let mut scores = [0.0; LANES];
    for (number, octet) in octets.iter().enumerate() {
        // −∞ where an edge may not be taken.
        fill(&mut scores, |lane| {
            let value = octet.value[lane];
            let q = if value.is_nan() { first_play } else { scale.apply(value) };
            q + octet.share[lane] * factor
        });
        let greatest = greatest(&scores);
        if greatest > best_score {
            best = Some(Choice { octet: number, lane: first_lane(&scores, greatest) });
            best_score = greatest;
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
