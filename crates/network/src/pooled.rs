/// Returns s = (√cells − 14) / 10, the multiplier of the scaled means of a pooled head (KataGo; Wu 2019, section
/// 3.3).
///
/// With means and scaled means a linear function of the inputs can grow with the side of the board. It cannot
/// represent a sum over the cells for every board size: that needs s² too, which the value head of KataGo has in
/// place of maxima.
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
