/// Returns s, by which the second third of a pooled head's inputs is a multiple of the means: (√cells − 14) / 10, as in
/// KataGo (Wu 2019, section 3.3). A sum over the board then is a linear function of the inputs, whatever the size of
/// the board.
#[must_use]
pub fn mean_scale(cells: usize) -> f64 {
    ((cells as f64).sqrt() - 14.0) / 10.0
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_scale_is_that_of_the_side_of_a_square_board() {
        for (side, scale) in [(4, -1.0), (9, -0.5), (14, 0.0), (19, 0.5)] {
            assert!((super::mean_scale(side * side) - scale).abs() < 1e-12);
        }
    }
}
