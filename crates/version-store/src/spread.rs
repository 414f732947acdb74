//! Selection of history entries to remove, such that the remaining entries stay spread over the whole history:
//! [`most_dispensable`].

/// Returns the candidate for removal that leaves the smallest gap between neighbours on a logarithmic scale. `places`
/// are in ascending order, and candidates are indices into `places`. The gap at the last place is infinite, so this
/// place is returned only if there is no other candidate.
pub(crate) fn most_dispensable(places: &[u64], candidates: impl Iterator<Item = usize>) -> Option<usize> {
    // Adding 1 keeps the logarithm of place 0 finite.
    let logarithm = |index: usize| places.get(index).map_or(f64::INFINITY, |&place| (place as f64 + 1.0).ln());
    let gap = |index: usize| logarithm(index + 1) - if index == 0 { 0.0 } else { logarithm(index - 1) };
    candidates.min_by(|&a, &b| gap(a).total_cmp(&gap(b)))
}

#[cfg(test)]
mod tests {
    use super::most_dispensable;

    #[test]
    fn the_place_between_the_closest_neighbours_is_dispensable_and_the_last_one_never_beside_others() {
        let all = |places: &[u64]| most_dispensable(places, 0..places.len());
        assert_eq!(all(&[1, 50, 60, 70, 100]), Some(2), "60 lies between 50 and 70");
        assert_eq!(all(&[1, 2, 4, 8, 9]), Some(3));
        assert_eq!(all(&[0, 7]), Some(0));
        assert_eq!(all(&[5]), Some(0));
        assert_eq!(all(&[]), None);
        assert_eq!(most_dispensable(&[1, 50, 60, 70, 100], [1, 4].into_iter()), Some(1));
    }
}
