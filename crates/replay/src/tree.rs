use std::ops::Range;

/// The number of leaves that share one node: few enough to read at once, enough that nodes cost little memory.
const BLOCK: usize = 16;

/// A tree with one place for every item of a table, oldest first, and the sums that sampling needs from one place on.
///
/// Places are numbered without end and lie in a ring, which doubles when it is full. Above blocks of leaves stands a
/// binary tree of [`Summary`]: every change recomputes the nodes above it from their children, so that no sum drifts
/// however often it changes. All is O(log places). Start with [`Tree::pick`], which is how prioritised replay draws
/// (Schaul et al. 2016, appendix B.2.1).
#[derive(Debug)]
pub(crate) struct Tree {
    /// A power of two of them, at least a block; the one of place `n` is `n` modulo their number.
    leaves: Vec<Leaf>,
    /// The root is the second; the children of `n` are `2n` and `2n + 1`; the last half stands above one block each.
    nodes: Vec<Summary>,
    /// The oldest place in use.
    front: u64,
    /// The place that comes next.
    end: u64,
}

/// The content of one place: the weight of an item, or a mark that it may not be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Leaf(f64);

impl Leaf {
    /// Nothing that may be drawn.
    pub(crate) const VACANT: Self = Self(-1.0);

    /// An item of this weight: finite, not below zero.
    pub(crate) fn new(weight: f64) -> Self {
        debug_assert!(weight >= 0.0 && weight.is_finite(), "{weight} is no weight");
        Self(weight)
    }

    fn is_item(self) -> bool {
        self.0 >= 0.0
    }
}

/// The sum of several places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    /// Places that are not vacant.
    pub(super) items: u64,
    /// Sum of their weights.
    pub(super) sum: f64,
    /// The least weight; infinite where there is none.
    pub(super) least: f64,
    /// The greatest weight; minus infinity where there is none.
    pub(super) greatest: f64,
}

impl Summary {
    pub(super) const NONE: Self = Self { items: 0, sum: 0.0, least: f64::INFINITY, greatest: f64::NEG_INFINITY };

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            items: self.items + other.items,
            sum: self.sum + other.sum,
            least: self.least.min(other.least),
            greatest: self.greatest.max(other.greatest),
        }
    }
}

impl From<Leaf> for Summary {
    fn from(leaf: Leaf) -> Self {
        if leaf.is_item() { Self { items: 1, sum: leaf.0, least: leaf.0, greatest: leaf.0 } } else { Self::NONE }
    }
}

impl Tree {
    /// A tree without places, whose first one will be `front`.
    pub(crate) fn new(front: u64) -> Self {
        let nodes = vec![Summary::NONE; 2];
        Self { leaves: vec![Leaf::VACANT; BLOCK], nodes, front, end: front }
    }

    /// Appends places at the new end.
    pub(crate) fn push_back(&mut self, leaves: impl ExactSizeIterator<Item = Leaf>) {
        let begin = self.end;
        self.grow(leaves.len());
        for leaf in leaves {
            let at = self.at(self.end);
            self.leaves[at] = leaf;
            self.end += 1;
        }
        self.sum_up(begin..self.end);
    }

    /// Gives up so many places at the old end.
    pub(crate) fn pop_front(&mut self, places: u64) {
        let begin = self.front;
        self.replace(begin, (0..places).map(|_| Leaf::VACANT));
        self.front += places;
    }

    /// Replaces what stands at some places from `begin` on.
    pub(crate) fn replace(&mut self, begin: u64, leaves: impl Iterator<Item = Leaf>) {
        let mut place = begin;
        for leaf in leaves {
            let at = self.at(place);
            self.leaves[at] = leaf;
            place += 1;
        }
        debug_assert!(begin >= self.front && place <= self.end, "places {begin}..{place} are not all in use");
        self.sum_up(begin..place);
    }

    /// Places that are not vacant.
    pub(crate) fn items(&self) -> u64 {
        self.nodes[1].items
    }

    /// The weight of the item at a place.
    pub(crate) fn weight(&self, place: u64) -> f64 {
        self.leaves[self.at(place)].0
    }

    /// Bytes of memory that it points to.
    pub(crate) fn bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<Leaf>() + self.nodes.capacity() * size_of::<Summary>()
    }

    fn at(&self, place: u64) -> usize {
        // The remainder is below a length, which fits.
        (place & (self.leaves.len() as u64 - 1)) as usize
    }

    /// The place whose leaf stands there.
    fn place(&self, at: usize) -> u64 {
        self.front + ((at as u64).wrapping_sub(self.front) & (self.leaves.len() as u64 - 1))
    }

    fn blocks(&self) -> usize {
        self.leaves.len() / BLOCK
    }

    /// Makes room for so many more places.
    fn grow(&mut self, places: usize) {
        let in_use = usize::try_from(self.end - self.front).expect("every place in use has a leaf in memory");
        if in_use + places <= self.leaves.len() {
            return;
        }
        let mut grown = vec![Leaf::VACANT; (in_use + places).next_power_of_two()];
        let mask = grown.len() as u64 - 1;
        for place in self.front..self.end {
            // As in `at`.
            grown[(place & mask) as usize] = self.leaves[self.at(place)];
        }
        self.leaves = grown;
        self.nodes = vec![Summary::NONE; 2 * self.blocks()];
        self.sum_up_leaves(0..self.leaves.len());
    }

    fn sum_up(&mut self, places: Range<u64>) {
        if places.is_empty() {
            return;
        }
        let (first, last) = (self.at(places.start), self.at(places.end - 1));
        if first <= last {
            self.sum_up_leaves(first..last + 1);
        } else {
            self.sum_up_leaves(first..self.leaves.len());
            self.sum_up_leaves(0..last + 1);
        }
    }

    /// Recomputes every node above these leaves from what is below it.
    fn sum_up_leaves(&mut self, leaves: Range<usize>) {
        let mut first = self.blocks() + leaves.start / BLOCK;
        let mut last = self.blocks() + (leaves.end - 1) / BLOCK;
        for node in first..=last {
            let begin = (node - self.blocks()) * BLOCK;
            let leaves = &self.leaves[begin..begin + BLOCK];
            self.nodes[node] = leaves.iter().fold(Summary::NONE, |sum, &leaf| sum.and(leaf.into()));
        }
        while first > 1 {
            (first, last) = (first / 2, last / 2);
            for node in first..=last {
                self.nodes[node] = self.nodes[2 * node].and(self.nodes[2 * node + 1]);
            }
        }
    }
}

mod query;
#[cfg(test)]
mod tests;
