use std::fmt;

/// Describes a registered game, apart from its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name in configurations, logs and trajectories. A game of several sizes is written `NAME-SIZE`: `hex-11`.
    pub name: &'static str,
    /// The sizes of the board; `None` if the game has only one.
    pub sizes: Option<Sizes>,
    /// The preset of a run: TOML with lower precedence than the run file of every process. Missing keys have the
    /// defaults of each process.
    pub preset: &'static str,
    /// The positions with known scores on which the arena measures accuracy; only for a game of one size.
    pub solved: Option<SolvedPositions>,
    /// Determines whether the arena plays every line of the game.
    pub exhaustive: Exhaustive,
}

/// The sizes of a board, as the number of cells along a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The size of the smallest board.
    pub min: u8,
    /// The size that examples and suggestions use.
    pub usual: u8,
    /// The size of the largest board.
    pub max: u8,
}

/// Positions with the score of every move, bundled with a game. `data/README.md` describes the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SolvedPositions {
    /// The name of the file, for error messages.
    pub file: &'static str,
    /// The content of the file.
    pub csv: &'static str,
}

/// Determines whether the arena plays every line of a game against the weights that it measures, which is feasible only
/// for tiny games.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhaustive {
    /// The arena plays every line, for every version.
    Check,
    /// The arena does not play every line.
    Skip,
}

/// The error for text that is not the name of a registered game.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No game has this name.
    #[error("`{name}` is not a game (did you mean `{nearest}`?): the games are {}", crate::names())]
    UnknownGame {
        /// The given name.
        name: String,
        /// The most similar name.
        nearest: String,
    },
    /// The game exists, but not at this size.
    #[error("`{name}` is not a size of {}: the sizes are {entry}", entry.name)]
    Size {
        /// The given name.
        name: String,
        /// The entry of the game.
        entry: &'static Entry,
    },
}

impl Entry {
    /// Reads the size in `name` if it names this game; 0 for a game of one size.
    pub(crate) fn size_in(&'static self, name: &str) -> Option<Result<u8, Error>> {
        let Some(sizes) = self.sizes else { return (name == self.name).then_some(Ok(0)) };
        let text = name.strip_prefix(self.name)?.strip_prefix('-')?;
        let size = text.parse().ok().filter(|size| (sizes.min..=sizes.max).contains(size));
        // A board has exactly one name: `hex-011` and `hex-+11` are rejected.
        let size = size.filter(|size| size.to_string() == text);
        Some(size.ok_or_else(|| self.wrong_size(name)))
    }

    pub(crate) fn wrong_size(&'static self, name: &str) -> Error {
        Error::Size { name: name.to_owned(), entry: self }
    }

    /// Returns the name of the game at a size.
    pub(crate) fn name_at(&self, size: Option<usize>) -> String {
        size.map_or_else(|| self.name.to_owned(), |size| format!("{}-{size}", self.name))
    }

    /// Returns the names of the smallest, the usual and the largest board, or the only name of a game of one size.
    pub fn examples(&self) -> impl Iterator<Item = String> {
        let sizes = self.sizes.map_or_else(|| vec![None], |s| [s.min, s.usual, s.max].map(Some).to_vec());
        sizes.into_iter().map(|size| self.name_at(size.map(usize::from)))
    }
}

/// Formats the range of the game's names: `connect_four`, `hex-3 to hex-19`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sizes {
            None => f.write_str(self.name),
            Some(Sizes { min, max, .. }) => write!(f, "{name}-{min} to {name}-{max}", name = self.name),
        }
    }
}
