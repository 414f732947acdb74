use std::fmt;
use std::str::FromStr;

use weights::Architecture;

/// Planes of every observation: how many there are matters to the first convolution only.
const PLANES: usize = 3;

/// The size of a measured network and its board: `BLOCKSxCHANNELS@HEIGHTxWIDTH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkSize {
    /// Residual blocks of the tower.
    pub blocks: usize,
    /// Channels of the tower.
    pub channels: usize,
    /// Rows of the board.
    pub height: usize,
    /// Columns of the board.
    pub width: usize,
}

impl NetworkSize {
    /// A plain tower of this size. Square boards have an action for each cell and one to pass, as Go does; others one
    /// for each column, as Connect Four does.
    #[must_use]
    pub fn architecture(self) -> Architecture {
        let Self { blocks, channels, height, width } = self;
        Architecture {
            game: "benchmark".to_owned(),
            planes: PLANES,
            height,
            width,
            actions: if height == width { height.saturating_mul(width).saturating_add(1) } else { width },
            channels,
            blocks,
            squeeze_excitation: 0,
            global_pooling: 0,
        }
    }
}

impl fmt::Display for NetworkSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}@{}x{}", self.blocks, self.channels, self.height, self.width)
    }
}

impl FromStr for NetworkSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let product = |part: &str| -> Option<[usize; 2]> {
            let (left, right) = part.split_once('x')?;
            Some([left.parse().ok()?, right.parse().ok()?])
        };
        let parse = || {
            let (tower, board) = text.split_once('@')?;
            let ([blocks, channels], [height, width]) = (product(tower)?, product(board)?);
            Some(Self { blocks, channels, height, width })
        };
        parse().ok_or_else(|| {
            format!("`{text}` is not the size of a network: expected BLOCKSxCHANNELS@HEIGHTxWIDTH, such as 6x64@6x7")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_back() {
        for text in ["6x64@6x7", "20x256@19x19", "0x32@1x1"] {
            assert_eq!(text.parse::<NetworkSize>().unwrap().to_string(), text);
        }
        let size: NetworkSize = "6x128@9x8".parse().unwrap();
        assert_eq!(size, NetworkSize { blocks: 6, channels: 128, height: 9, width: 8 });
    }

    #[test]
    fn what_is_no_size_is_answered_with_how_one_is_written() {
        for text in
            ["", "6x64", "6@6x7", "6x64@6", "6x64@6x7x8", "sixx64@6x7", "-1x64@6x7", "99999999999999999999x64@6x7"]
        {
            let error = text.parse::<NetworkSize>().unwrap_err();
            assert!(error.contains(&format!("`{text}`")) && error.contains("6x64@6x7"), "{error}");
        }
    }

    #[test]
    fn square_boards_have_an_action_for_each_cell_and_one_to_pass() {
        let actions = |text: &str| text.parse::<NetworkSize>().unwrap().architecture().actions;
        assert_eq!((actions("1x16@9x9"), actions("1x16@6x7")), (82, 7));
    }
}
