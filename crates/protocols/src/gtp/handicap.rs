//! The fixed places of handicap stones in Go, section 4.1.1 of the specification: [`fixed`].

use crate::{Cell, Size};

/// Minimum side with fixed places, and the minimum with places on the fourth line.
const SIDE_MIN: usize = 7;
const SIDE_OF_FOURTH_LINE: usize = 13;

/// Returns the maximum number of stones with fixed places.
pub(super) fn fixed_max(size: Size) -> usize {
    match size.width() {
        _ if !size.is_square() => 0,
        side if side < SIDE_MIN => 0,
        side if side == SIDE_MIN || side % 2 == 0 => 4,
        _ => 9,
    }
}

/// Returns the places of `count` stones; `None` if they are not fixed.
pub(super) fn fixed(size: Size, count: usize) -> Option<Vec<Cell>> {
    if !(2..=fixed_max(size)).contains(&count) {
        return None;
    }
    let low = if size.width() < SIDE_OF_FOURTH_LINE { 2 } else { 3 };
    let (high, middle) = (size.width() - 1 - low, size.width() / 2);
    let corners = [(low, high), (high, low), (low, low), (high, high)];
    let (sides, ends) = ([(low, middle), (high, middle)], [(middle, high), (middle, low)]);
    let mut places = corners[..count.min(corners.len())].to_vec();
    if count >= 6 {
        places.extend(sides);
    }
    if count >= 8 {
        places.extend(ends);
    }
    if count % 2 == 1 && count >= 5 {
        places.push((middle, middle));
    }
    places.into_iter().map(|(column, row)| size.cell(column, row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BoardGame;

    /// The specification's table for the 19 × 19 board.
    #[test]
    fn the_places_are_those_of_the_specification() {
        let names = |side, count| {
            let size = Size::square(side).unwrap();
            let cells = fixed(size, count)?;
            let mut names: Vec<String> = cells.iter().map(|cell| BoardGame::Go.cell_name(size, *cell)).collect();
            names.sort();
            Some(names.join(" "))
        };
        let expected = [
            (19, 2, "D4 Q16"),
            (19, 3, "D16 D4 Q16"),
            (19, 4, "D16 D4 Q16 Q4"),
            (19, 5, "D16 D4 K10 Q16 Q4"),
            (19, 6, "D10 D16 D4 Q10 Q16 Q4"),
            (19, 7, "D10 D16 D4 K10 Q10 Q16 Q4"),
            (19, 8, "D10 D16 D4 K16 K4 Q10 Q16 Q4"),
            (19, 9, "D10 D16 D4 K10 K16 K4 Q10 Q16 Q4"),
            (9, 5, "C3 C7 E5 G3 G7"),
            (8, 4, "C3 C6 F3 F6"),
        ];
        for (side, count, places) in expected {
            assert_eq!(names(side, count).as_deref(), Some(places), "{count} stones on {side}");
        }
        for (side, count) in [(19, 1), (19, 10), (8, 5), (7, 5), (6, 2), (1, 2)] {
            assert_eq!(names(side, count), None, "{count} stones on {side}");
        }
        assert_eq!(fixed(Size::new(9, 19).unwrap(), 2), None);
    }
}
