use std::ops::{ControlFlow, Range};

use super::{BLOCK, Leaf, Summary, Tree};

/// A part of a range of leaves, by index: all leaves below one node, or a single leaf.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Node(usize),
    Leaf(usize),
}

/// A node and the leaves below it.
#[derive(Debug, Clone, Copy)]
struct Span {
    node: usize,
    first: usize,
    leaves: usize,
}

impl Tree {
    /// Returns the place of the item with exactly `rank` older items. `rank` must be below the number of items.
    pub(crate) fn nth(&self, rank: u64) -> u64 {
        debug_assert!(rank < self.items(), "{} items have no rank {rank}", self.items());
        // The leaves before the oldest place are the latest leaves, which wrapped around the ring buffer.
        let wrapped = self.summary(0..self.at(self.front)).items;
        let mut rank = (rank + wrapped) % self.items();
        let mut node = 1;
        while node < self.blocks() {
            let left = self.nodes[2 * node].items;
            (node, rank) = if rank < left { (2 * node, rank) } else { (2 * node + 1, rank - left) };
        }
        let items = self.block(node).filter(|&(_, leaf)| leaf.is_item());
        let index = usize::try_from(rank).expect("a rank within a block");
        let (at, _) = items.into_iter().nth(index).expect("the block contains the items counted by the node");
        self.place(at)
    }

    /// Returns the sum of the weights from the place `from` on.
    pub(crate) fn sum(&self, from: u64) -> f64 {
        let [older, newer] = self.parts(from);
        self.summary(older).sum + self.summary(newer).sum
    }

    /// Returns the first place at which the cumulative weight from `from` on exceeds `point`, which must be at least 0.
    /// A uniformly random `point` below [`Tree::sum`] picks items in proportion to weight.
    ///
    /// Never returns a place with weight 0, regardless of rounding. Returns `None` if all weights are 0.
    pub(crate) fn pick(&self, from: u64, point: f64) -> Option<u64> {
        let mut rest = point;
        // If rounding leads past the end, the last item with a weight above zero is picked.
        let mut last = None;
        let mut visit = |piece| {
            let sum = self.piece(piece).sum;
            if sum > 0.0 {
                last = Some(piece);
                if rest < sum {
                    return ControlFlow::Break(piece);
                }
                rest -= sum;
            }
            ControlFlow::Continue(())
        };
        let [older, newer] = self.parts(from);
        let found = match self.pieces(&older, &mut visit) {
            ControlFlow::Continue(()) => self.pieces(&newer, &mut visit),
            found => found,
        };
        let at = match found {
            ControlFlow::Break(piece) => self.pick_below(piece, rest),
            ControlFlow::Continue(()) => self.pick_below(last?, f64::INFINITY),
        };
        Some(self.place(at))
    }

    /// Returns the place with the highest weight from the place `from` on. Ties go to the oldest. `None` without items.
    pub(crate) fn greatest(&self, from: u64) -> Option<u64> {
        let mut best: Option<(Piece, f64)> = None;
        let mut visit = |piece| {
            let summary = self.piece(piece);
            if summary.items > 0 && best.is_none_or(|(_, greatest)| summary.greatest > greatest) {
                best = Some((piece, summary.greatest));
            }
            ControlFlow::<()>::Continue(())
        };
        for part in self.parts(from) {
            // `visit` never breaks.
            let _ = self.pieces(&part, &mut visit);
        }
        let (piece, greatest) = best?;
        let mut node = match piece {
            Piece::Leaf(at) => return Some(self.place(at)),
            Piece::Node(node) => node,
        };
        // The highest weight of a node is bitwise equal to the weight of a leaf below the node.
        let holds = |summary: Summary| summary.items > 0 && summary.greatest.total_cmp(&greatest).is_eq();
        while node < self.blocks() {
            node = if holds(self.nodes[2 * node]) { 2 * node } else { 2 * node + 1 };
        }
        let (at, _) = self.block(node).find(|&(_, leaf)| holds(leaf.into()))?;
        Some(self.place(at))
    }

    /// Returns the index of the first leaf of a piece at which the cumulative weight exceeds `point`. If no leaf does,
    /// returns the last leaf with a weight above zero.
    fn pick_below(&self, piece: Piece, point: f64) -> usize {
        let mut node = match piece {
            Piece::Leaf(at) => return at,
            Piece::Node(node) => node,
        };
        let mut rest = point;
        // The sum below `node` is above zero at every step.
        while node < self.blocks() {
            let (left, right) = (self.nodes[2 * node].sum, self.nodes[2 * node + 1].sum);
            (node, rest) = if rest < left || right <= 0.0 { (2 * node, rest) } else { (2 * node + 1, rest - left) };
        }
        let mut last = None;
        for (at, Leaf(weight)) in self.block(node).filter(|(_, leaf)| leaf.0 > 0.0) {
            last = Some(at);
            if rest < weight {
                break;
            }
            rest -= weight;
        }
        last.expect("a sum above zero contains a weight above zero")
    }

    /// Returns the leaves from the place `from` on as two index ranges: up to the end of the ring buffer, and after the
    /// wrap-around.
    fn parts(&self, from: u64) -> [Range<usize>; 2] {
        debug_assert!(self.front <= from && from < self.end, "place {from} is not in use");
        let (front, from) = (self.at(self.front), self.at(from));
        // Unused leaves are vacant, so the ranges may include them.
        if from < front { [from..front, 0..0] } else { [from..self.leaves.len(), 0..front] }
    }

    fn block(&self, node: usize) -> impl Iterator<Item = (usize, Leaf)> + '_ {
        let begin = (node - self.blocks()) * BLOCK;
        (begin..).zip(&self.leaves[begin..begin + BLOCK]).map(|(at, &leaf)| (at, leaf))
    }

    fn summary(&self, leaves: Range<usize>) -> Summary {
        let mut summary = Summary::NONE;
        // The visitor never breaks.
        let _ = self.pieces(&leaves, &mut |piece| {
            summary = summary.and(self.piece(piece));
            ControlFlow::<()>::Continue(())
        });
        summary
    }

    fn piece(&self, piece: Piece) -> Summary {
        match piece {
            Piece::Node(node) => self.nodes[node],
            Piece::Leaf(at) => self.leaves[at].into(),
        }
    }

    /// Visits, in order, the smallest set of pieces that covers a range of leaves.
    fn pieces<B>(&self, range: &Range<usize>, visit: &mut impl FnMut(Piece) -> ControlFlow<B>) -> ControlFlow<B> {
        let root = Span { node: 1, first: 0, leaves: self.leaves.len() };
        pieces_below(root, range, visit)
    }
}

fn pieces_below<B>(
    span: Span,
    range: &Range<usize>,
    visit: &mut impl FnMut(Piece) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let Span { node, first, leaves } = span;
    let begin = range.start.max(first);
    let end = range.end.min(first + leaves);
    if begin >= end {
        return ControlFlow::Continue(());
    }
    if end - begin == leaves {
        return visit(Piece::Node(node));
    }
    if leaves == BLOCK {
        return (begin..end).try_for_each(|at| visit(Piece::Leaf(at)));
    }
    let half = leaves / 2;
    pieces_below(Span { node: 2 * node, first, leaves: half }, range, visit)?;
    pieces_below(Span { node: 2 * node + 1, first: first + half, leaves: half }, range, visit)
}
