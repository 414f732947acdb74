use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::folded::{Affine, Dense};
use crate::planes::{Board, Format, Layout, Line, Planes, WORDS};

/// Outputs that are adjacent in memory: the lanes of one line of weights.
pub(crate) const GROUP: usize = 16;

/// Weight layout of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packing {
    pub(crate) format: Format,
    /// Output groups computed together.
    pub(crate) panel_groups: usize,
    /// True if every segment has sixteen words and every panel all groups, padded with zeros, so that the words of a
    /// group are a tile.
    pub(crate) whole: bool,
}

impl Packing {
    /// Creates a segment with the number of words in this layout.
    fn segment(self, tap: Tap, pixels: isize, block: usize, channels: usize) -> Segment {
        let words = if self.whole { WORDS } else { channels.div_ceil(self.format.per_word()) };
        Segment { tap, pixels, block, channels, words }
    }
}

/// Maximum integer weight.
const WEIGHT_MAX: f32 = 127.0;

/// Adjacent inputs: `channels` channels, at most one line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) tap: Tap,
    /// Pixels from the pixel of the row.
    pixels: isize,
    /// Block of channels.
    block: usize,
    channels: usize,
    /// Words of that line to multiply, 1 to 16.
    pub(crate) words: usize,
}

impl Segment {
    /// Returns the lines from the line of the row.
    #[inline(always)]
    pub(crate) fn offset(&self, layout: Layout) -> isize {
        layout.offset(self.pixels, self.block)
    }
}

/// Segments of consecutive blocks, with equal pixels and equal numbers of words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) first: Segment,
    pub(crate) blocks: usize,
}

impl Stretch {
    fn all(segments: &[Segment]) -> Vec<Self> {
        let place = |segment: &Segment| (segment.tap, segment.pixels, segment.words);
        let follows = |a: &Segment, b: &Segment| place(a) == place(b) && a.block + 1 == b.block;
        segments.chunk_by(follows).map(|chunk| Self { first: chunk[0], blocks: chunk.len() }).collect()
    }
}

/// Output groups computed together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel {
    pub(crate) first_group: usize,
    pub(crate) groups: usize,
    /// Line where the weights start: `[segment, word, group]`, or `[segment, group, word]` in whole panels, with 16
    /// outputs each.
    pub(crate) weights: usize,
}

/// A matrix packed in reading order, with the input locations of a row.
///
/// In a convolution, a row is a pixel and the segments are the pixels of the taps. In a head layer, a row is a
/// position and the segments are the cells.
#[derive(Debug)]
pub(crate) struct Product {
    pub(crate) segments: Vec<Segment>,
    /// The segments, joined for callers that take many at a time.
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) panels: Vec<Panel>,
    pub(crate) weights: Slab,
    /// Groups with outputs; further groups only pad the last panel, and are not written.
    pub(crate) groups: usize,
    /// `[groups]`, 16 outputs each.
    pub(crate) bias: Vec<[f32; GROUP]>,
    /// True if any bias is not zero.
    pub(crate) has_bias: bool,
    /// Scale of each output's integer sums, in the order of `bias`; all 1 for other formats.
    pub(crate) scales: Vec<[f32; GROUP]>,
    pub(crate) format: Format,
}

impl Product {
    /// Packs `weight(output, segment index, channel)`. Integers are scaled so that each output's largest weight is
    /// 127.
    pub(crate) fn new(
        packing: Packing,
        segments: Vec<Segment>,
        bias: &[f32],
        weight: impl Fn(usize, usize, usize) -> f32,
    ) -> Self {
        let (format, outputs) = (packing.format, bias.len());
        let words: usize = segments.iter().map(|segment| segment.words).sum();
        let together = packing.panel_groups;
        let groups = match packing.whole {
            true => outputs.div_ceil(GROUP).next_multiple_of(together),
            false => outputs.div_ceil(GROUP),
        };

        let scales: Vec<f32> = match format {
            Format::F32 | Format::Bf16 => vec![1.0; outputs],
            Format::I8 => (0..outputs)
                .map(|output| {
                    let of_segment = |(index, segment): (usize, &Segment)| {
                        (0..segment.channels).map(|channel| weight(output, index, channel).abs()).fold(0.0, f32::max)
                    };
                    let largest = segments.iter().enumerate().map(of_segment).fold(0.0, f32::max);
                    // An output without weights is just the bias, for any scale.
                    if largest > 0.0 { largest / WEIGHT_MAX } else { 1.0 }
                })
                .collect(),
        };
        let mut panels = Vec::new();
        let mut weights = Vec::with_capacity(groups * words);
        for first_group in (0..groups).step_by(together) {
            let panel = Panel { first_group, groups: together.min(groups - first_group), weights: weights.len() };
            for (index, segment) in segments.iter().enumerate() {
                let line_of = |word: usize, group: usize| {
                    let mut line = Line::default();
                    for lane in 0..GROUP {
                        let output = group * GROUP + lane;
                        for part in 0..format.per_word() {
                            let channel = word * format.per_word() + part;
                            if output < outputs && channel < segment.channels {
                                // A lane is a word; the parts of a word are set as channels of the line.
                                let at = lane * format.per_word() + part;
                                line.set(format, at, weight(output, index, channel) / scales[output]);
                            }
                        }
                    }
                    line
                };
                for index in 0..segment.words * panel.groups {
                    let (word, group) = match packing.whole {
                        true => (index % segment.words, index / segment.words),
                        false => (index / panel.groups, index % panel.groups),
                    };
                    weights.push(line_of(word, first_group + group));
                }
            }
            panels.push(panel);
        }
        let grouped = |values: &[f32]| {
            let mut grouped = vec![[0.0; GROUP]; groups];
            grouped.as_flattened_mut()[..outputs].copy_from_slice(values);
            grouped
        };
        let has_bias = bias.iter().any(|&bias| bias != 0.0);
        let (bias, scales) = (grouped(bias), grouped(&scales));
        Self {
            stretches: Stretch::all(&segments),
            segments,
            panels,
            weights: weights.into(),
            groups: outputs.div_ceil(GROUP),
            bias,
            has_bias,
            scales,
            format,
        }
    }

    /// Packs a convolution, 3×3 with zero padding or 1×1.
    pub(crate) fn convolution(packing: Packing, affine: &Affine, board: Board) -> Self {
        let taps = if affine.taps == 9 { Tap::all() } else { vec![Tap::HERE] };
        let segments = Self::segments(packing, affine, &taps, board);
        let (per_line, blocks) = (packing.format.per_line(), segments.len() / taps.len());
        Self::new(packing, segments, &affine.bias, |output, index, channel| {
            let (tap, block) = (index / blocks, index % blocks);
            affine.weight[(output * affine.inputs + block * per_line + channel) * affine.taps + tap]
        })
    }

    /// Returns the inputs of a convolution, tap by tap, and for each tap the blocks of channels.
    pub(crate) fn segments(packing: Packing, affine: &Affine, taps: &[Tap], board: Board) -> Vec<Segment> {
        let per_line = packing.format.per_line();
        let of_tap = |&tap: &Tap| {
            let blocks = (0..affine.inputs).step_by(per_line).map(move |first| per_line.min(affine.inputs - first));
            blocks.enumerate().map(move |(block, channels)| packing.segment(tap, tap.pixels(board), block, channels))
        };
        taps.iter().flat_map(of_tap).collect()
    }

    /// Packs a layer over the features `[cell, channels]` of a position, stored in planes from channel `first` on.
    pub(crate) fn over_cells(packing: Packing, dense: &Dense, board: Board, first: usize) -> Self {
        let (per_line, channels) = (packing.format.per_line(), dense.inputs / board.cells());
        let (blocks, first_block) = (channels / per_line, first / per_line);
        let of_cell = |cell| {
            let pixels = board.pixel(cell) as isize;
            (first_block..first_block + blocks).map(move |block| packing.segment(Tap::HERE, pixels, block, per_line))
        };
        let segments = (0..board.cells()).flat_map(of_cell).collect();
        Self::new(packing, segments, &dense.bias, |output, index, channel| {
            let (cell, block) = (index / blocks, index % blocks);
            dense.weight[output * dense.inputs + cell * channels + block * per_line + channel]
        })
    }

    /// Returns the minimum and maximum segment offset from a row's line, in lines: at most 0 and at least 0.
    pub(crate) fn reach(&self, layout: Layout) -> (isize, isize) {
        let offsets = || self.segments.iter().map(|segment| segment.offset(layout));
        (offsets().min().unwrap_or(0).min(0), offsets().max().unwrap_or(0).max(0))
    }

    /// Returns the number of outputs, including the padding of the last panel.
    pub(crate) fn padded_outputs(&self) -> usize {
        self.bias.len() * GROUP
    }
}

/// Taps that reach the border around a run of rows. They would multiply zeros, and are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Edges {
    /// Taps that reach the border from every row.
    pub(crate) hidden: Taps,
    /// Taps that reach the border from the first row.
    pub(crate) first: Taps,
    /// Taps that reach the border from the last row; disjoint from `first`.
    pub(crate) last: Taps,
}

/// Maximum rows of a run.
pub(crate) const RUN_ROWS: usize = u32::BITS as usize;

/// Rows a constant number of lines apart, from `line` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) line: usize,
    /// At most [`RUN_ROWS`].
    pub(crate) rows: usize,
    /// Lines between rows.
    pub(crate) stride: usize,
    /// One bit for each computed row; other rows are unchanged in the output.
    pub(crate) wanted: u32,
    pub(crate) edges: Edges,
}

impl Run {
    /// Creates a run without edges, with all rows computed.
    pub(crate) fn new(line: usize, rows: usize, stride: usize) -> Self {
        Self { line, rows, stride, wanted: u32::MAX >> (RUN_ROWS - rows), edges: Edges::default() }
    }

    /// Returns the line of the last row.
    pub(crate) fn end(&self) -> usize {
        self.line + self.rows.saturating_sub(1) * self.stride
    }

    /// Returns whether both runs may be computed together: they have the same number of rows, stride and edges.
    pub(crate) fn makes_pair(&self, other: &Self) -> bool {
        let shape = |run: &Self| (run.rows, run.stride, run.edges.first, run.edges.last);
        shape(self) == shape(other)
    }

    /// Returns whether every row is computed.
    pub(crate) fn computes_all_rows(&self) -> bool {
        self.wanted.count_ones() as usize == self.rows
    }

    /// Returns whether a row is computed.
    #[inline(always)]
    pub(crate) fn computes_row(&self, row: usize) -> bool {
        self.wanted >> row & 1 != 0
    }
}

/// Destination of a product.
#[derive(Debug)]
pub(crate) enum Output<'a> {
    /// Into planes, each row at the same line as in the input, rounded to the format of the planes.
    Planes {
        planes: &'a mut Planes,
        /// Position in `planes` that receives the first position.
        first: usize,
        /// Add the values in the planes.
        add: bool,
        /// Then set negative sums to zero.
        relu: bool,
    },
    /// Into a matrix `[rows, padded outputs]` of float32, with rows counted through all runs. Each run starts where
    /// the previous one ends.
    Matrix { values: &'a mut [f32], relu: bool },
}

/// Neighbour of a cell that an input belongs to: 0 to 8, row by row, with 4 for the cell itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tap(u8);

impl Tap {
    /// The cell itself.
    pub(crate) const HERE: Self = Self(4);

    /// The cell, with left and right neighbours.
    pub(crate) const BESIDE: [Self; 3] = [Self(3), Self(4), Self(5)];

    /// Returns all taps, in the order of a convolution's weights.
    pub(crate) fn all() -> Vec<Self> {
        (0..9).map(Self).collect()
    }

    /// Returns the rows down, -1 to 1.
    fn down(self) -> isize {
        isize::from(self.0) / 3 - 1
    }

    /// Returns the columns to the right, -1 to 1.
    fn right(self) -> isize {
        isize::from(self.0) % 3 - 1
    }

    /// Returns the pixels from a cell to the neighbour.
    pub(crate) fn pixels(self, board: Board) -> isize {
        self.down() * board.down() as isize + self.right() * board.right() as isize
    }

    /// Returns whether the neighbour of a pixel lies outside the board.
    fn leaves(self, board: Board, pixel: usize) -> bool {
        let (row, column) = board.place(pixel);
        let (row, column) = (row as isize + self.down(), column as isize + self.right());
        !(0..board.height as isize).contains(&row) || !(0..board.width as isize).contains(&column)
    }
}

/// A set of taps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taps(u16);

impl Taps {
    const LEFT: Self = Self(0b001_001_001);
    const RIGHT: Self = Self(0b100_100_100);
    const ABOVE: Self = Self(0b000_000_111);
    const BELOW: Self = Self(0b111_000_000);

    /// Returns the taps that leave a line of the board from the first cell, and from the last.
    pub(crate) fn beyond_line(board: Board) -> (Self, Self) {
        if board.turned { (Self::ABOVE, Self::BELOW) } else { (Self::LEFT, Self::RIGHT) }
    }

    /// Returns the taps that leave the board from every one of `pixels`.
    pub(crate) fn hidden(board: Board, pixels: impl Iterator<Item = usize> + Clone) -> Self {
        let hidden = |tap: &Tap| pixels.clone().all(|pixel| tap.leaves(board, pixel));
        Self(Tap::all().into_iter().filter(hidden).fold(0, |set, tap| set | 1 << tap.0))
    }

    /// Returns whether a tap is in the set.
    #[inline(always)]
    pub(crate) fn contain(self, tap: Tap) -> bool {
        self.0 >> tap.0 & 1 != 0
    }

    /// Returns the place of a cell with these hidden taps on a walk around the board and then inside, so that
    /// consecutive cells share many hidden taps.
    pub(crate) fn around(self) -> usize {
        let [above, below, left, right] = [Self::ABOVE, Self::BELOW, Self::LEFT, Self::RIGHT].map(|taps| taps.0);
        let walk = [above | left, above, above | right, right, below | right, below, below | left, left];
        walk.iter().position(|&hidden| hidden == self.0).unwrap_or(walk.len())
    }

    /// Returns the intersection of both sets.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Lines of weights, in a separate allocation or in one piece with other products.
#[derive(Debug)]
pub(crate) struct Slab {
    piece: Arc<Vec<Line>>,
    range: Range<usize>,
}

impl Slab {
    /// Moves all slabs into one piece of memory in order, in huge pages where the system has them. A network reads
    /// all weights in every pass, and translating the addresses of thousands of small pages takes a core longer than
    /// reading some of them.
    pub(crate) fn gather(slabs: &mut [&mut Self]) {
        let len = slabs.iter().map(|slab| slab.len()).sum::<usize>();
        let page = cpu::HUGE_PAGE_BYTES / size_of::<Line>();
        // The lines start at the beginning of a huge page if they fill at least one.
        let before = if len < page { 0 } else { page };
        let mut piece = Vec::<Line>::with_capacity(before + len);
        cpu::advise_huge_pages(piece.spare_capacity_mut());
        let first = piece.as_ptr().align_offset(cpu::HUGE_PAGE_BYTES).min(before);
        piece.resize(first, Line::default());
        let mut ranges = Vec::with_capacity(slabs.len());
        for slab in slabs.iter() {
            ranges.push(piece.len()..piece.len() + slab.len());
            piece.extend_from_slice(slab);
        }
        let piece = Arc::new(piece);
        for (slab, range) in slabs.iter_mut().zip(ranges) {
            **slab = Self { piece: Arc::clone(&piece), range };
        }
    }
}

impl From<Vec<Line>> for Slab {
    fn from(lines: Vec<Line>) -> Self {
        Self { range: 0..lines.len(), piece: Arc::new(lines) }
    }
}

impl Deref for Slab {
    type Target = [Line];

    #[inline(always)]
    fn deref(&self) -> &[Line] {
        &self.piece[self.range.clone()]
    }
}

#[cfg(test)]
mod tests;
