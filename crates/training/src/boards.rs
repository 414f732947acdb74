use weights::Architecture;

use crate::{Error, ModelLayers};

/// The boards on which a network is trained, by board index.
///
/// A network with tensors for any board size, see [`Architecture::on`], can be trained on several boards of the same
/// game. Any other network is trained only on the board with index 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boards(Vec<Architecture>);

impl Boards {
    /// Creates the boards with `network` on board 0 as the only board.
    #[must_use]
    pub fn new(network: Architecture) -> Self {
        Self(vec![network])
    }

    /// Returns the architecture of the network on board 0.
    #[must_use]
    pub fn network(&self) -> &Architecture {
        &self.0[0]
    }

    /// Adds a board, given the `architecture` of the network on this board. Returns the board index.
    ///
    /// # Errors
    /// [`Error::OtherGame`] if the network cannot be evaluated on this board; [`Error::Network`] if a board dimension
    /// is out of range; [`Error::Board`] if the layers differ or the board was already added. Nothing is added in these
    /// cases.
    pub fn add(&mut self, architecture: &Architecture) -> Result<usize, Error> {
        let refused = |reason| Err(Error::Board { game: architecture.game.clone(), reason });
        if self.network().on(architecture.board())? != *architecture {
            return refused("the network on this board has different layers");
        }
        ModelLayers::new(architecture)?;
        if self.0.contains(architecture) {
            return refused("the trainer already has this board");
        }
        self.0.push(architecture.clone());
        Ok(self.0.len() - 1)
    }

    /// Returns the architecture of the network on the board with index `board`.
    ///
    /// # Errors
    /// [`Error::BoardIndex`] if the index is out of range.
    pub fn get(&self, board: usize) -> Result<&Architecture, Error> {
        self.0.get(board).ok_or(Error::BoardIndex { board, boards: self.0.len() })
    }
}

#[cfg(test)]
mod tests {
    use weights::{Design, HeadKind};

    use super::*;

    fn go(height: usize, width: usize) -> Architecture {
        Architecture {
            design: Design { heads: HeadKind::Pooled, ..Design::default() },
            ..Architecture::plain(format!("go-{height}x{width}"), [4, height, width], height * width + 1, [8, 1])
        }
    }

    #[test]
    fn boards_have_the_indices_in_which_they_were_added() {
        let mut boards = Boards::new(go(5, 5));
        assert_eq!([boards.add(&go(4, 7)).unwrap(), boards.add(&go(9, 9)).unwrap()], [1, 2]);
        assert_eq!([0, 1, 2].map(|board| boards.get(board).unwrap().clone()), [go(5, 5), go(4, 7), go(9, 9)]);
        let error = boards.get(3).unwrap_err();
        assert_eq!(error.to_string(), "the batch is for board 3, but the trainer has 3 boards (indices from 0)");
    }

    #[test]
    fn what_is_no_other_board_of_the_network_is_refused_and_not_added() {
        let mut boards = Boards::new(go(5, 5));
        let hex = Architecture { game: "hex-6".to_owned(), ..go(6, 6) };
        let flattened = Architecture { design: Design::default(), ..go(6, 6) };
        let too_wide = format!("width {}", network::SIDE_MAX + 1);
        for (other, reason) in [
            (go(5, 5), "the trainer already has this board"),
            (Architecture { channels: 9, ..go(6, 6) }, "the network on this board has different layers"),
            (flattened.clone(), "the network on this board has different layers"),
            (hex, "not for hex-6"),
            (Architecture { actions: 36, ..go(6, 6) }, "the network has"),
            (go(6, network::SIDE_MAX + 1), &too_wide),
        ] {
            let error = boards.add(&other).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(boards, Boards::new(go(5, 5)));
        let error = Boards::new(Architecture { design: Design::default(), ..go(5, 5) }).add(&flattened).unwrap_err();
        assert!(error.to_string().contains("heads are not pooled"), "{error}");
    }
}
