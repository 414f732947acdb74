use crate::board::Board;
use crate::folded::{Affine, Dense};
use crate::layout::Layout;
use crate::line::{Format, Line, WORDS};
use crate::planes::Planes;
use crate::slab::Slab;
use crate::tap::{Tap, Taps};

/// Outputs that lie beside each other in memory: the lanes of one line of weights.
pub(crate) const GROUP: usize = 16;

/// The layout of weights for a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packing {
    pub(crate) format: Format,
    /// Groups of outputs that are computed together.
    pub(crate) panel_groups: usize,
    /// True if segments have all sixteen words and panels all their groups, the rest being zero, so that the words of a
    /// group are a tile.
    pub(crate) whole: bool,
}

/// The largest integer weight.
const WEIGHT_MAX: f32 = 127.0;

/// Inputs beside each other: `channels` channels, at most a line's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) tap: Tap,
    /// Pixels from the row's own.
    pub(crate) pixels: isize,
    /// The block of channels.
    pub(crate) block: usize,
    pub(crate) channels: usize,
}

/// The same in words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) tap: Tap,
    pixels: isize,
    block: usize,
    /// Words of that line which are multiplied, 1 to 16.
    pub(crate) words: usize,
}

impl Segment {
    /// Lines from the row's own.
    #[inline(always)]
    pub(crate) fn offset(&self, layout: Layout) -> isize {
        layout.offset(self.pixels, self.block)
    }
}

/// Segments that follow each other from block to block, of the same pixels and as many words.
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

/// Groups of outputs that are computed together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel {
    pub(crate) first_group: usize,
    pub(crate) groups: usize,
    /// The line where its weights begin: `[segment, word, group]`, or `[segment, group, word]` in whole panels, 16
    /// outputs in each.
    pub(crate) weights: usize,
}

/// A matrix, packed in the order it is read, and where a row's inputs lie.
///
/// A convolution is one: a row is a pixel, its segments are the taps' pixels. A layer of a head is one: a row is a
/// position, its segments are the cells.
#[derive(Debug)]
pub(crate) struct Product {
    pub(crate) segments: Vec<Segment>,
    /// The same, for callers that take many at a time.
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) panels: Vec<Panel>,
    pub(crate) weights: Slab,
    /// Groups that hold an output; those beyond only fill the last panel, and are not written.
    pub(crate) groups: usize,
    /// `[groups]`, 16 outputs in each.
    pub(crate) bias: Vec<[f32; GROUP]>,
    /// The scale of the integer sums of each output, in the order of the bias; ones for other formats.
    pub(crate) scales: Vec<[f32; GROUP]>,
    pub(crate) format: Format,
}

impl Product {
    /// Packs `weight(output, span, channel)`. Integers are scaled so that the largest weight of each output is 127.
    pub(crate) fn new(
        packing: Packing,
        spans: &[Span],
        bias: &[f32],
        weight: impl Fn(usize, usize, usize) -> f32,
    ) -> Self {
        let (format, outputs) = (packing.format, bias.len());
        let segments: Vec<Segment> = spans
            .iter()
            .map(|span| {
                let words = if packing.whole { WORDS } else { span.channels.div_ceil(format.per_word()) };
                Segment { tap: span.tap, pixels: span.pixels, block: span.block, words }
            })
            .collect();
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
                    let of_span = |(span, stretch): (usize, &Span)| {
                        (0..stretch.channels).map(|channel| weight(output, span, channel).abs()).fold(0.0, f32::max)
                    };
                    let largest = spans.iter().enumerate().map(of_span).fold(0.0, f32::max);
                    // An output without weights is its bias, whatever its scale.
                    if largest > 0.0 { largest / WEIGHT_MAX } else { 1.0 }
                })
                .collect(),
        };
        let mut panels = Vec::new();
        let mut weights = Vec::with_capacity(groups * words);
        for first_group in (0..groups).step_by(together) {
            let panel = Panel { first_group, groups: together.min(groups - first_group), weights: weights.len() };
            for (span, segment) in segments.iter().enumerate() {
                let channels = spans[span].channels;
                let line_of = |word: usize, group: usize| {
                    let mut line = Line::default();
                    for lane in 0..GROUP {
                        let output = group * GROUP + lane;
                        for part in 0..format.per_word() {
                            let channel = word * format.per_word() + part;
                            if output < outputs && channel < channels {
                                // A lane is a word: its parts are set as channels of the line.
                                let at = lane * format.per_word() + part;
                                line.set(format, at, weight(output, span, channel) / scales[output]);
                            }
                        }
                    }
                    line
                };
                let (words, groups) = (0..segment.words, first_group..first_group + panel.groups);
                if packing.whole {
                    weights.extend(
                        groups
                            .flat_map(|group| words.clone().map(move |word| (word, group)))
                            .map(|(word, group)| line_of(word, group)),
                    );
                } else {
                    weights.extend(
                        words
                            .flat_map(|word| groups.clone().map(move |group| (word, group)))
                            .map(|(word, group)| line_of(word, group)),
                    );
                }
            }
            panels.push(panel);
        }
        let grouped = |values: &[f32]| {
            let mut grouped = vec![[0.0; GROUP]; groups];
            grouped.as_flattened_mut()[..outputs].copy_from_slice(values);
            grouped
        };
        let (bias, scales) = (grouped(bias), grouped(&scales));
        Self {
            stretches: Stretch::all(&segments),
            segments,
            panels,
            weights: weights.into(),
            groups: outputs.div_ceil(GROUP),
            bias,
            scales,
            format,
        }
    }

    /// A convolution, 3×3 with a border of zeros or 1×1.
    pub(crate) fn convolution(packing: Packing, affine: &Affine, board: Board) -> Self {
        let taps = if affine.taps == 9 { Tap::all() } else { vec![Tap::HERE] };
        let spans = Self::spans(packing, affine, &taps, board);
        let (per_line, blocks) = (packing.format.per_line(), spans.len() / taps.len());
        Self::new(packing, &spans, &affine.bias, |output, span, channel| {
            let (tap, block) = (span / blocks, span % blocks);
            affine.weight[(output * affine.inputs + block * per_line + channel) * affine.taps + tap]
        })
    }

    /// The inputs of a convolution, tap by tap, in each the blocks of channels.
    pub(crate) fn spans(packing: Packing, affine: &Affine, taps: &[Tap], board: Board) -> Vec<Span> {
        let per_line = packing.format.per_line();
        let of_tap = |&tap: &Tap| {
            (0..affine.inputs).step_by(per_line).enumerate().map(move |(block, first)| Span {
                tap,
                pixels: tap.pixels(board),
                block,
                channels: per_line.min(affine.inputs - first),
            })
        };
        taps.iter().flat_map(of_tap).collect()
    }

    /// A layer over the features `[cell, channels]` of a position, which lie in planes from channel `first` on.
    pub(crate) fn over_cells(packing: Packing, dense: &Dense, board: Board, first: usize) -> Self {
        let (per_line, channels) = (packing.format.per_line(), dense.inputs / board.cells());
        let (blocks, first_block) = (channels / per_line, first / per_line);
        let spans: Vec<Span> = (0..board.cells())
            .flat_map(|cell| {
                (first_block..first_block + blocks).map(move |block| Span {
                    tap: Tap::HERE,
                    pixels: board.pixel(cell) as isize,
                    block,
                    channels: per_line,
                })
            })
            .collect();
        Self::new(packing, &spans, &dense.bias, |output, span, channel| {
            let (cell, block) = (span / blocks, span % blocks);
            dense.weight[output * dense.inputs + cell * channels + block * per_line + channel]
        })
    }

    /// Lines before and after a row's own that its segments lie at, at most.
    pub(crate) fn reach(&self, layout: Layout) -> (isize, isize) {
        let offsets = || self.segments.iter().map(|segment| segment.offset(layout));
        (offsets().min().unwrap_or(0).min(0), offsets().max().unwrap_or(0).max(0))
    }

    /// Outputs, with those that fill the last panel.
    pub(crate) fn padded_outputs(&self) -> usize {
        self.bias.len() * GROUP
    }
}

/// The taps that reach the border around a run of rows. They would multiply zeros, and are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Edges {
    /// Those of every row.
    pub(crate) hidden: Taps,
    /// Those of the first row.
    pub(crate) first: Taps,
    /// Those of the last row; none is also among those of the first.
    pub(crate) last: Taps,
}

/// Rows of a run at most.
pub(crate) const RUN_ROWS: usize = u32::BITS as usize;

/// Rows that lie a constant number of lines apart, from `line` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) line: usize,
    /// At most [`RUN_ROWS`].
    pub(crate) rows: usize,
    /// Lines from one row to the next.
    pub(crate) stride: usize,
    /// A bit for each row that is computed; the others stay as they are in the output.
    pub(crate) wanted: u32,
    pub(crate) edges: Edges,
}

impl Run {
    /// A run without an edge, all of whose rows are wanted.
    pub(crate) fn new(line: usize, rows: usize, stride: usize) -> Self {
        Self { line, rows, stride, wanted: u32::MAX >> (RUN_ROWS - rows), edges: Edges::default() }
    }

    /// The line of the last row.
    pub(crate) fn end(&self) -> usize {
        self.line + self.rows.saturating_sub(1) * self.stride
    }

    /// Returns whether the rows of another run may be computed with these: as many, as far apart, between the same
    /// edges.
    pub(crate) fn makes_pair(&self, other: &Self) -> bool {
        let shape = |run: &Self| (run.rows, run.stride, run.edges.first, run.edges.last);
        shape(self) == shape(other)
    }

    /// Returns whether every row is computed.
    pub(crate) fn wants_all(&self) -> bool {
        self.wanted.count_ones() as usize == self.rows
    }

    /// Returns whether a row is computed.
    #[inline(always)]
    pub(crate) fn wants(&self, row: usize) -> bool {
        self.wanted >> row & 1 != 0
    }
}

/// The destination of a product.
#[derive(Debug)]
pub(crate) enum Output<'a> {
    /// Into planes, each row at the line it came from, rounded to their format.
    Planes {
        planes: &'a mut Planes,
        /// The position there of the first position.
        first: usize,
        /// Add what is there.
        add: bool,
        /// Then negative sums become zero.
        relu: bool,
    },
    /// Into a matrix `[rows, padded outputs]` of float32, rows counted through all runs; there is one run.
    Matrix { values: &'a mut [f32], relu: bool },
}

#[cfg(test)]
mod tests;
