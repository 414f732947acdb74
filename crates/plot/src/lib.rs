//! Colours, label placement and types shared by the picture of a run and the plots of benchmarks.
//!
//! [`BLUE`], [`ORANGE`] and [`GREEN`] are for lines, [`INK`] for text, [`GRID`] behind them; [`moved_apart`] places labels.
//! Drawing itself is done with `plotters` by the callers.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

/// The first line colour; the three stay distinguishable for colour-blind readers (Okabe and Ito).
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
/// The second line colour.
pub const ORANGE: RGBColor = RGBColor(213, 94, 0);
/// The third line colour.
pub const GREEN: RGBColor = RGBColor(0, 158, 115);
/// The colour of text.
pub const INK: RGBColor = RGBColor(60, 60, 60);
/// The colour of grid lines.
pub const GRID: RGBColor = RGBColor(232, 232, 232);
/// The height of a label in pixels: labels are moved at least this far apart.
const LABEL_HEIGHT: i32 = 17;

/// An area of an SVG file.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A chart in an SVG file.
pub type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Moves ascending heights at least one label apart, and between the edges as far as there is room.
pub fn moved_apart(heights: &[i32], top: i32, bottom: i32) -> Vec<i32> {
    let mut moved = heights.to_vec();
    let mut free = top;
    for height in &mut moved {
        *height = (*height).max(free);
        free = *height + LABEL_HEIGHT;
    }
    let mut free = bottom;
    for height in moved.iter_mut().rev() {
        *height = (*height).min(free);
        free = *height - LABEL_HEIGHT;
    }
    moved
}

/// Converts an error of `plotters`, whose lifetime is bound to the drawing area.
pub fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_moved_apart_and_stay_inside() {
        assert_eq!(moved_apart(&[0, 5, 90, 100], 0, 100), [0, 17, 83, 100]);
        assert!(moved_apart(&[], 0, 100).is_empty());
    }
}
