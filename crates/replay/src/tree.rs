use std::ops::Range;

/// The number of leaves in a block. Smaller blocks need more memory for inner nodes; larger blocks take longer to read.
const BLOCK: usize = 16;

/// A sum tree over the items of a table, one place for each item, oldest first. Sampling uses the sum over a suffix.
///
/// Places have consecutive numbers that are never reused. The leaves are stored in a ring buffer that doubles when
/// full. Leaf blocks form the lowest level of a binary tree of [`Summary`] nodes. Every change recomputes all
/// nodes above the block from the child nodes, so no rounding errors accumulate. All operations are O(log places).
/// Start with [`Tree::pick`], the sampling of prioritised replay (Schaul et al. 2016, appendix B.2.1).
#[derive(Debug)]
pub(crate) struct Tree {
    /// The ring buffer of leaves. The length is a power of two and at least [`BLOCK`]. Place `n` is at index
    /// `n mod length`.
    leaves: Vec<Leaf>,
    /// The inner nodes. The root is at index 1, and the children of node `n` are at `2n` and `2n + 1`. Each node in the
    /// second half of the vector is the parent of one block.
    nodes: Vec<Summary>,
    /// The oldest place in use.
    front: u64,
    /// The number of the next place to append.
    end: u64,
}

/// The content of one place: the weight of a drawable item, or [`Leaf::VACANT`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Leaf(f64);

impl Leaf {
    /// A place without a drawable item.
    pub(crate) const VACANT: Self = Self(-1.0);

    /// Creates the leaf of an item with the weight `weight`, which must be finite and not negative.
    pub(crate) fn new(weight: f64) -> Self {
        debug_assert!(weight >= 0.0 && weight.is_finite(), "the weight {weight} is negative or not finite");
        Self(weight)
    }

    fn is_item(self) -> bool {
        self.0 >= 0.0
    }
}

/// The item count, the weight sum and the highest weight over several places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    /// The number of places that are not vacant.
    pub(super) items: u64,
    /// The sum of the weights.
    pub(super) sum: f64,
    /// The highest weight; negative infinity if all places are vacant.
    pub(super) greatest: f64,
}

impl Summary {
    pub(super) const NONE: Self = Self { items: 0, sum: 0.0, greatest: f64::NEG_INFINITY };

    pub(super) fn and(self, other: Self) -> Self {
        Self { items: self.items + other.items, sum: self.sum + other.sum, greatest: self.greatest.max(other.greatest) }
    }
}

impl From<Leaf> for Summary {
    fn from(leaf: Leaf) -> Self {
        if leaf.is_item() { Self { items: 1, sum: leaf.0, greatest: leaf.0 } } else { Self::NONE }
    }
}

impl Tree {
    /// Creates a tree without places. The first appended place gets the number `front`.
    pub(crate) fn new(front: u64) -> Self {
        let nodes = vec![Summary::NONE; 2];
        Self { leaves: vec![Leaf::VACANT; BLOCK], nodes, front, end: front }
    }

    /// Appends places with these leaves at the end.
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

    /// Removes the oldest `places` places.
    pub(crate) fn pop_front(&mut self, places: u64) {
        let begin = self.front;
        self.replace(begin, (0..places).map(|_| Leaf::VACANT));
        self.front += places;
    }

    /// Replaces the leaves at consecutive places from `begin` on.
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

    /// Returns the number of places that are not vacant.
    pub(crate) fn items(&self) -> u64 {
        self.nodes[1].items
    }

    /// Returns the weight of the item at a place; negative if vacant.
    pub(crate) fn weight(&self, place: u64) -> f64 {
        self.leaves[self.at(place)].0
    }

    /// Returns the heap memory of the tree in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<Leaf>() + self.nodes.capacity() * size_of::<Summary>()
    }

    /// Returns the heap memory that the tree would have with `places` places in use, in bytes.
    pub(crate) fn bytes_of(&self, places: u64) -> u64 {
        let leaves = places.next_power_of_two().max(self.leaves.len() as u64);
        leaves * size_of::<Leaf>() as u64 + 2 * leaves / BLOCK as u64 * size_of::<Summary>() as u64
    }

    fn at(&self, place: u64) -> usize {
        // The remainder is less than the number of leaves, so it fits in `usize`.
        (place & (self.leaves.len() as u64 - 1)) as usize
    }

    /// Returns the number of the place stored at index `at` of the ring buffer.
    fn place(&self, at: usize) -> u64 {
        self.front + ((at as u64).wrapping_sub(self.front) & (self.leaves.len() as u64 - 1))
    }

    fn blocks(&self) -> usize {
        self.leaves.len() / BLOCK
    }

    /// Grows the ring buffer, if necessary, to hold `places` more places.
    fn grow(&mut self, places: usize) {
        let in_use = usize::try_from(self.end - self.front).expect("every place in use has a leaf in memory");
        if in_use + places <= self.leaves.len() {
            return;
        }
        let mut grown = vec![Leaf::VACANT; (in_use + places).next_power_of_two()];
        let mask = grown.len() as u64 - 1;
        for place in self.front..self.end {
            // The cast is lossless, as in `at`.
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

    /// Recomputes, from the bottom up, every node above a range of leaves.
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
