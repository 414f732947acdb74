use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Generates leaves with weights over the whole range of f64, and vacant leaves.
fn weight() -> impl Strategy<Value = Option<f64>> {
    let known = prop::sample::select(vec![0.0, 1e-300, 1e-30, 1.0, 1e30, 1e300]);
    prop_oneof![1 => Just(None), 2 => known.prop_map(Some), 4 => (0.0..10.0).prop_map(Some)]
}

#[derive(Debug, Clone)]
enum Change {
    Push(Vec<Option<f64>>),
    Pop(prop::sample::Index),
    Replace(prop::sample::Index, Vec<Option<f64>>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => prop::collection::vec(weight(), 0..70).prop_map(Change::Push),
        1 => any::<prop::sample::Index>().prop_map(Change::Pop),
        2 => (any::<prop::sample::Index>(), prop::collection::vec(weight(), 0..20))
            .prop_map(|(at, weights)| Change::Replace(at, weights)),
    ]
}

fn leaf(weight: Option<f64>) -> Leaf {
    weight.map_or(Leaf::VACANT, Leaf::new)
}

/// A reference implementation: a list of places, scanned by every query.
struct Naive {
    front: u64,
    places: VecDeque<Option<f64>>,
}

impl Naive {
    fn apply(&mut self, change: Change, tree: &mut Tree) {
        match change {
            Change::Push(weights) => {
                tree.push_back(weights.iter().map(|&weight| leaf(weight)));
                self.places.extend(weights);
            }
            Change::Pop(places) => {
                let places = places.index(self.places.len() + 1);
                tree.pop_front(places as u64);
                self.front += places as u64;
                self.places.drain(..places);
            }
            Change::Replace(at, weights) => {
                let at = at.index(self.places.len() + 1);
                let weights = &weights[..weights.len().min(self.places.len() - at)];
                tree.replace(self.front + at as u64, weights.iter().map(|&weight| leaf(weight)));
                for (place, &weight) in self.places.range_mut(at..).zip(weights) {
                    *place = weight;
                }
            }
        }
    }

    fn items(&self, from: u64) -> impl Iterator<Item = (u64, f64)> + '_ {
        let items = (self.front..).zip(&self.places).filter_map(|(place, &weight)| Some((place, weight?)));
        items.filter(move |&(place, _)| place >= from)
    }

    /// Returns the oldest item with the highest weight.
    fn greatest(&self, from: u64) -> Option<u64> {
        let greatest = self.items(from).map(|(_, weight)| weight).max_by(f64::total_cmp)?;
        self.items(from).find(|&(_, weight)| weight == greatest).map(|(place, _)| place)
    }
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-12 * expected
}

fn check(tree: &Tree, naive: &Naive, from: u64, shares: &[f64]) -> Result<(), TestCaseError> {
    let sum: f64 = naive.items(from).map(|(_, weight)| weight).sum();
    prop_assert!(close(tree.sum(from), sum), "{} is not {}", tree.sum(from), sum);
    prop_assert_eq!(tree.greatest(from), naive.greatest(from));
    for share in shares {
        match tree.pick(from, share * tree.sum(from)) {
            Some(place) => {
                let found = naive.items(from).find(|&(item, _)| item == place);
                prop_assert!(found.is_some_and(|(_, weight)| weight > 0.0), "{:?}", found);
                let before: f64 =
                    naive.items(from).take_while(|&(item, _)| item < place).map(|(_, weight)| weight).sum();
                let (least, greatest) = (before / sum, (before + tree.weight(place)) / sum);
                prop_assert!(least - 1e-12 <= *share && *share <= greatest + 1e-12, "{} at {}", share, place);
            }
            None => prop_assert!(sum == 0.0),
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_tree_agrees_with_a_list_from_any_place_on(
        front in prop::sample::select(vec![0, 5, 1_000_003, u64::MAX / 2]),
        script in prop::collection::vec(change(), 1..40),
        from in any::<prop::sample::Index>(), shares in prop::collection::vec(0.0..1.0, 5),
    ) {
        let mut tree = Tree::new(front);
        let mut naive = Naive { front, places: VecDeque::new() };
        for change in script {
            naive.apply(change, &mut tree);
            prop_assert_eq!(tree.items(), naive.items(0).count() as u64);
            for (rank, (place, weight)) in naive.items(0).enumerate() {
                prop_assert_eq!((tree.nth(rank as u64), tree.weight(place)), (place, weight));
            }
            if naive.places.is_empty() {
                continue;
            }
            check(&tree, &naive, naive.front, &shares)?;
            check(&tree, &naive, naive.front + from.index(naive.places.len()) as u64, &shares)?;
        }
    }

    /// After any sequence of changes, a tree is bitwise equal to a tree rebuilt from the leaves.
    #[test]
    fn no_sum_drifts(script in prop::collection::vec(change(), 1..60)) {
        let mut tree = Tree::new(0);
        let mut naive = Naive { front: 0, places: VecDeque::new() };
        for change in script {
            naive.apply(change, &mut tree);
        }
        let nodes = tree.nodes.clone();
        tree.sum_up_leaves(0..tree.leaves.len());
        prop_assert_eq!(nodes, tree.nodes);
    }
}

#[test]
fn a_weight_of_zero_is_never_picked_even_at_the_edges() {
    // There are zeros at both ends, next to both weights, and in whole blocks.
    let mut weights = vec![0.0; 100];
    (weights[40], weights[41]) = (0.1, 0.2);
    let mut tree = Tree::new(0);
    tree.push_back(weights.into_iter().map(Leaf::new));
    let sum = tree.sum(0);
    for (point, place) in [(0.0, 40), (0.1_f64.next_down(), 40), (0.1, 41), (sum.next_down(), 41), (sum, 41), (9.0, 41)]
    {
        assert_eq!(tree.pick(0, point), Some(place), "{point}");
    }
    assert_eq!(tree.pick(41, 0.0), Some(41));
    assert_eq!(tree.pick(42, 0.0), None);
}

#[test]
fn the_ring_grows_only_when_it_is_full() {
    let mut tree = Tree::new(0);
    for _ in 0..1000 {
        tree.push_back(std::iter::repeat_n(Leaf::new(1.0), 16));
        tree.pop_front(16);
    }
    assert_eq!((tree.leaves.len(), tree.items()), (16, 0));
    tree.push_back(std::iter::repeat_n(Leaf::new(1.0), 17));
    assert_eq!((tree.leaves.len(), tree.items(), tree.nth(16)), (32, 17, 16_016));
}
