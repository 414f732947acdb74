//! pUCT: action value plus an exploration bonus proportional to the prior.

use crate::edges::{LANES, Octet};
use crate::select::lanes::{Choice, fill, first_lane, greatest};
use crate::value_range::Rescale;

/// The terms common to all edges of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<R> {
    /// The exploration factor for the visit count of the node, from [`ExplorationFactors::at`].
    pub(crate) factor: f32,
    /// The rescaled value of an unvisited edge.
    pub(crate) first_play: f32,
    pub(crate) scale: R,
}

/// Scores every edge of a node by pUCT and returns the available edge with the best score, or `None` if no edge is
/// available. Ties go to the lowest action, so the search is reproducible.
///
/// `Q + P · √N / (1 + n) · (c_init + ln((N + c_base + 1) / c_base))`, Schrittwieser et al. 2020, appendix B. `N` counts
/// the visits of the node, including the evaluation of the node, as in the AlphaZero pseudocode. Before any child is
/// visited, the prior therefore decides, not the action order. Unvisited children have the first-play value rather
/// than zero: with zero, a losing root would visit every move once before visiting any move twice.
#[inline(always)]
pub(crate) fn best(octets: &[Octet], terms: Terms<impl Rescale>) -> Option<Choice> {
    let (mut best, mut best_score) = (None, f32::NEG_INFINITY);
    let Terms { factor, first_play, scale } = terms;
    let mut scores = [0.0; LANES];
    for (number, octet) in octets.iter().enumerate() {
        // The score of an unavailable edge is −∞.
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

/// The exploration factor `√N · (c_init + ln((N + c_base + 1) / c_base))` for any visit count N, tabulated for small N.
#[derive(Debug)]
pub(crate) struct ExplorationFactors {
    c_base: f32,
    c_init: f32,
    table: Vec<f32>,
}

impl ExplorationFactors {
    /// The length of the table, in visits. Most nodes have fewer visits, and a longer table would not stay in the L1
    /// cache.
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
mod tests {
    use super::*;
    use crate::edges::{Edges, UNAVAILABLE, UNVISITED};
    use crate::value_range::Scale;

    fn choose(values: &[f32], counts: &[f32], priors: &[f32], terms: Terms<Scale>) -> Option<usize> {
        best(Edges::of(values, counts, priors).all(), terms).map(|Choice { octet, lane }| octet * LANES + lane)
    }

    fn terms(visits: u32, first_play: f32) -> Terms<Scale> {
        Terms { factor: ExplorationFactors::new(19_652.0, 1.25).at(visits), first_play, scale: Scale::IDENTITY }
    }

    #[test]
    fn ties_go_to_the_lowest_action() {
        assert_eq!(choose(&[0.5; 3], &[2.0; 3], &[0.25; 3], terms(7, 0.0)), Some(0));
    }

    #[test]
    fn before_any_visit_the_prior_decides() {
        assert_eq!(choose(&[UNVISITED; 3], &[0.0; 3], &[0.2, 0.5, 0.3], terms(1, 0.0)), Some(1));
    }

    #[test]
    fn an_unvisited_child_has_the_first_play_value() {
        let with = |first_play| choose(&[0.5, UNVISITED], &[9.0, 0.0], &[0.9, 0.1], terms(10, first_play));
        assert_eq!((with(-1.0), with(0.9)), (Some(0), Some(1)));
    }

    #[test]
    fn an_unavailable_child_is_never_chosen() {
        assert_eq!(choose(&[UNAVAILABLE, -1.0], &[0.0, 50.0], &[1.0, 0.0], terms(51, 0.0)), Some(1));
        assert_eq!(choose(&[UNAVAILABLE; 2], &[0.0; 2], &[0.5; 2], terms(1, 0.0)), None);
    }

    /// Covers nodes with more edges than fit in one octet.
    #[test]
    fn the_best_of_many_actions_is_chosen_at_any_index() {
        for len in [1, 7, 8, 9, 16, 17, 40] {
            for at in 0..len {
                let mut values = vec![0.25; len];
                values[at] = 0.5;
                assert_eq!(choose(&values, &vec![3.0; len], &vec![0.1; len], terms(7, 0.0)), Some(at), "of {len}");
                let ties = vec![UNAVAILABLE; at].into_iter().chain(vec![0.5; len - at]).collect::<Vec<_>>();
                assert_eq!(choose(&ties, &vec![3.0; len], &vec![0.1; len], terms(7, 0.0)), Some(at), "of {len}");
            }
        }
    }

    /// Compares the factors with the published formula in f64.
    #[test]
    fn factors_are_the_formula_inside_the_table_and_beyond() {
        let factors = ExplorationFactors::new(19_652.0, 1.25);
        for visits in [0_u32, 1, 2, 100, 1023, 1024, 1025, 50_000, 1_000_000] {
            let n = f64::from(visits);
            let expected = n.sqrt() * (1.25 + ((n + 19_652.0 + 1.0) / 19_652.0).ln());
            assert!((f64::from(factors.at(visits)) - expected).abs() <= 1e-5 * expected);
        }
    }
}
