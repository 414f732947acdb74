//! Chooses the board for each training step.

/// Smooth weighted round robin over boards: each board is selected in proportion to its weight, as evenly as possible.
/// In every turn, each board gains its weight as credit. The board with the most credit is selected, and loses the sum
/// of all weights.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    weights: Vec<f64>,
    credits: Vec<f64>,
}

impl Turns {
    /// Creates the order for boards with these weights; at least one weight, all above 0.
    pub(crate) fn new(weights: Vec<f64>) -> Self {
        Self { credits: vec![0.0; weights.len()], weights }
    }

    /// Returns the index of the next board; with equal credit, the first board.
    pub(crate) fn next(&mut self) -> usize {
        let mut next = 0;
        for (board, weight) in self.weights.iter().enumerate() {
            self.credits[board] += weight;
            if self.credits[board] > self.credits[next] {
                next = board;
            }
        }
        self.credits[next] -= self.weights.iter().sum::<f64>();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_boards_take_turns_and_others_are_spread_evenly() {
        let first = |weights: &[f64], count| {
            let mut turns = Turns::new(weights.to_vec());
            (0..count).map(|_| turns.next()).collect::<Vec<_>>()
        };
        assert_eq!(first(&[1.0], 3), [0, 0, 0]);
        assert_eq!(first(&[1.0, 1.0, 1.0], 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(first(&[5.0, 1.0, 1.0], 7), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn at_any_time_every_board_has_had_its_share_of_turns_to_within_one() {
        for weights in [vec![2.0, 1.0], vec![0.3, 0.7], vec![1.0, 4.0, 2.5]] {
            let (mut turns, mut taken) = (Turns::new(weights.clone()), vec![0.0; weights.len()]);
            let all: f64 = weights.iter().sum();
            for count in 1..=1000 {
                taken[turns.next()] += 1.0;
                for (weight, taken) in weights.iter().zip(&taken) {
                    let share: f64 = f64::from(count) * weight / all;
                    assert!((taken - share).abs() <= 1.0, "{weights:?}: {taken} of {count} turns");
                }
            }
        }
    }
}
