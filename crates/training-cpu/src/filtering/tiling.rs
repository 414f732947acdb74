use std::ops::Range;

use training::Precision;

use super::points::{self, OUTPUTS_MAX, POINTS};
use crate::shape::{Shape, evenly};

/// Maximum outputs of a piece with bfloat16 products: with 2 the gradients are as near to float32 as libtorch's, with
/// 3 they are not.
const OUTPUTS_MAX_BF16: usize = 2;

/// A board cut into tiles, with the pairs of points for the products.
#[derive(Debug)]
pub(super) struct Tiling {
    pub(super) tiles: Vec<Tile>,
    pub(super) pairs: Vec<PointPair>,
    /// Pairs of all tiles, per position.
    pub(super) values: usize,
}

/// A pair of points, one in each direction.
#[derive(Debug)]
pub(super) struct PointPair {
    pub(super) points: [usize; 2],
    /// Number of tiles with this pair.
    pub(super) tiles: usize,
    /// Values per position at all previous pairs.
    before: usize,
}

/// A rectangle of the board.
#[derive(Debug)]
pub(super) struct Tile {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    /// Places of the values, by pair of points in tile order.
    pub(super) places: Vec<Place>,
}

/// Place of a tile's value at a pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    before: usize,
    tiles: usize,
    index: usize,
}

impl Tiling {
    /// Cuts the board of a convolution into tiles that suit products of `precision`: large tiles need the fewest
    /// products, small tiles round bfloat16 the least.
    pub(super) fn new(shape: Shape, precision: Precision) -> Self {
        let most = match precision {
            Precision::F32 => OUTPUTS_MAX,
            Precision::Bf16 | Precision::F16 => OUTPUTS_MAX_BF16,
        };
        let pieces = [shape.height, shape.width].map(|side| evenly(side, most));
        let (mut pairs, mut values): (Vec<PointPair>, usize) = (Vec::new(), 0);
        let has = |piece: &Range<usize>, point: usize| points::of_piece(piece.len()).any(|of_piece| of_piece == point);
        for points in (0..POINTS).flat_map(|down| (0..POINTS).map(move |right| [down, right])) {
            let counts = [0, 1].map(|side| pieces[side].clone().filter(|piece| has(piece, points[side])).count());
            let tiles = counts[0] * counts[1];
            if tiles > 0 {
                pairs.push(PointPair { points, tiles, before: values });
                values += tiles;
            }
        }
        let mut taken = vec![0; pairs.len()];
        let mut tile = |rows: Range<usize>, columns: Range<usize>| {
            let all = points::of_piece(rows.len())
                .flat_map(|down| points::of_piece(columns.len()).map(move |right| [down, right]));
            let place = |points: [usize; 2]| {
                let found = pairs.iter().position(|pair| pair.points == points);
                let pair = found.expect("a tile has the pairs of its points");
                taken[pair] += 1;
                Place { before: pairs[pair].before, tiles: pairs[pair].tiles, index: taken[pair] - 1 }
            };
            let places = all.map(place).collect();
            Tile { rows, columns, places }
        };
        let both = pieces[0].clone().flat_map(|rows| pieces[1].clone().map(move |columns| (rows.clone(), columns)));
        let tiles = both.map(|(rows, columns)| tile(rows, columns)).collect();
        Self { tiles, pairs, values }
    }
}

impl Tile {
    /// Returns the grid index of each tile value, with the row for `position` in the values at all pairs.
    #[inline(always)]
    pub(super) fn values(&self, positions: usize, position: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let across = self.columns.len() + 2;
        let at = move |index: usize| index / across * POINTS + index % across;
        self.places.iter().enumerate().map(move |(index, place)| (at(index), place.row(positions, position)))
    }

    /// Returns the grid index of each tile cell, with the cell index on a board of this width.
    #[inline(always)]
    pub(super) fn cells(&self, width: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let row = move |(down, row): (usize, usize)| {
            let columns = self.columns.clone().enumerate();
            columns.map(move |(right, column)| (down * POINTS + right, row * width + column))
        };
        self.rows.clone().enumerate().flat_map(row)
    }
}

impl PointPair {
    /// Returns the pair's rows in the values of all pairs.
    pub(super) fn rows(&self, positions: usize) -> Range<usize> {
        positions * self.before..positions * (self.before + self.tiles)
    }
}

impl Place {
    /// Returns the row of a position in the values of all pairs.
    #[inline(always)]
    pub(super) fn row(self, positions: usize, position: usize) -> usize {
        self.before * positions + self.tiles * position + self.index
    }
}
