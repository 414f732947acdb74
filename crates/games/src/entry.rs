use std::fmt;

/// The description of a registered game, apart from the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Name in configurations, logs and trajectories, if the game has no variants.
    pub name: &'static str,
    /// Variants of the game, each with a separate name.
    pub variants: Variants,
    /// Preset of a run: TOML with lower precedence than the run file of every process. Missing keys have the defaults
    /// of each process.
    pub preset: &'static str,
    /// Positions with known scores, on which the arena measures accuracy; only for games without variants.
    pub solved: Option<SolvedPositions>,
    /// Determines whether the arena plays every line of the game.
    pub exhaustive: Exhaustive,
}

/// The variants of a game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variants {
    /// One form, with the name of the game.
    One,
    /// One variant per size, written `NAME-SIZE`: `hex-11`.
    Sizes(Sizes),
    /// One variant per board of columns and rows except the usual board, which has another entry; written
    /// `NAME-COLUMNSxROWS`: `connect_four-6x5`.
    Boards(Boards),
    /// A few variants with full names, identified by index in the registry: `cartpole-v0`.
    Named(&'static [&'static str]),
}

/// The sizes of a game: cells along a side of the board, or another number that the game's module documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Minimum size.
    pub min: u8,
    /// Size for examples and suggestions.
    pub usual: u8,
    /// Maximum size.
    pub max: u8,
}

/// The boards of a game with columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boards {
    /// The board with the name of the game alone.
    pub usual: BoardSize,
    /// Boards of this entry for tests and suggestions, smallest first.
    pub examples: &'static [BoardSize],
    /// Condition on all boards, in words.
    pub condition: &'static str,
}

/// The size of a board with columns and rows, at most 15 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoardSize {
    /// Number of columns.
    pub columns: u8,
    /// Number of rows.
    pub rows: u8,
}

impl BoardSize {
    /// Parses `6x5`. Every size has exactly one form: `06x5` and `+6x5` are rejected.
    fn parse(text: &str) -> Option<Self> {
        let (columns, rows) = text.split_once('x')?;
        let size = Self { columns: columns.parse().ok()?, rows: rows.parse().ok()? };
        (size.columns < 16 && size.rows < 16 && size.to_string() == text).then_some(size)
    }

    /// Returns the registry number of the board.
    pub(crate) const fn variant(self) -> u8 {
        self.columns << 4 | self.rows
    }

    /// Returns the board with this registry number.
    pub(crate) const fn of_variant(variant: u8) -> Self {
        Self { columns: variant >> 4, rows: variant & 15 }
    }
}

impl fmt::Display for BoardSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.columns, self.rows)
    }
}

/// Positions with the score of every move, bundled with a game. `data/README.md` describes the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SolvedPositions {
    /// Name of the file, for error messages.
    pub file: &'static str,
    /// Content of the file.
    pub csv: &'static str,
}

/// Determines whether the arena plays every line of a game against the measured weights, which is feasible only for
/// tiny games.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhaustive {
    /// The arena plays every line, for every version.
    Check,
    /// The arena does not play every line.
    Skip,
}

/// The error for text that does not name a registered game.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No game has this name.
    #[error("`{name}` is not a game{}; games are {}", suggested(nearest.as_deref()), crate::names())]
    UnknownGame {
        /// The given name.
        name: String,
        /// The most similar name, if any is similar.
        nearest: Option<String>,
    },
    /// The game exists, but not in this size.
    #[error("`{name}` is not a size of {}; sizes are {entry}", entry.name)]
    Size {
        /// The given name.
        name: String,
        /// Entry of the game.
        entry: &'static Entry,
    },
    /// The board is the usual board, which has the name of the game alone.
    #[error("`{name}` is the usual board: write `{}`", entry.name)]
    UsualBoard {
        /// The given name.
        name: String,
        /// Entry of the game.
        entry: &'static Entry,
    },
    /// The environment runs outside this program and requires a description.
    #[error("`{name}` runs outside this program; describe it in the section [environment] of a run file")]
    Undescribed {
        /// The given name.
        name: String,
    },
}

fn suggested(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!(" (did you mean {nearest}?)")).unwrap_or_default()
}

impl Entry {
    /// Describes a game without solved positions whose lines are too many to play them all.
    pub(crate) const fn new(name: &'static str, variants: Variants, preset: &'static str) -> Self {
        Self { name, variants, preset, solved: None, exhaustive: Exhaustive::Skip }
    }

    /// Reads the variant in `name` if it names this game: the size, the board number, or the index of the name; 0 for
    /// a game with one form.
    pub(crate) fn variant_in(&'static self, name: &str) -> Option<Result<u8, Error>> {
        let sizes = match self.variants {
            Variants::One => return (name == self.name).then_some(Ok(0)),
            Variants::Named(names) => {
                let index = names.iter().position(|&other| other == name)?;
                return Some(Ok(u8::try_from(index).expect("a game has a few names")));
            }
            Variants::Boards(boards) => {
                let text = name.strip_prefix(self.name)?.strip_prefix('-')?;
                return Some(self.board_in(name, text, boards));
            }
            Variants::Sizes(sizes) => sizes,
        };
        let text = name.strip_prefix(self.name)?.strip_prefix('-')?;
        let size = text.parse().ok().filter(|size| (sizes.min..=sizes.max).contains(size));
        // Every board has exactly one name: `hex-011` and `hex-+11` are rejected.
        let size = size.filter(|size| size.to_string() == text);
        Some(size.ok_or_else(|| self.wrong_size(name)))
    }

    /// Reads the board size in `text`, the end of `name`.
    fn board_in(&'static self, name: &str, text: &str, boards: Boards) -> Result<u8, Error> {
        match BoardSize::parse(text) {
            None => Err(self.wrong_size(name)),
            Some(size) if size == boards.usual => Err(Error::UsualBoard { name: name.to_owned(), entry: self }),
            Some(size) => Ok(size.variant()),
        }
    }

    pub(crate) fn wrong_size(&'static self, name: &str) -> Error {
        Error::Size { name: name.to_owned(), entry: self }
    }

    /// Returns the name of a variant, given by size, board number, or index of the name.
    pub(crate) fn name_of(&self, variant: usize) -> String {
        match self.variants {
            Variants::One => self.name.to_owned(),
            Variants::Sizes(_) => format!("{}-{variant}", self.name),
            Variants::Boards(_) => {
                let variant = u8::try_from(variant).expect("the number of a board fits 8 bits");
                format!("{}-{}", self.name, BoardSize::of_variant(variant))
            }
            Variants::Named(names) => names[variant].to_owned(),
        }
    }

    /// Returns example names: the minimum, usual and maximum size, some boards, or all names of a game without sizes.
    pub fn examples(&self) -> impl Iterator<Item = String> {
        let mut variants: Vec<usize> = match self.variants {
            Variants::One => vec![0],
            Variants::Sizes(sizes) => [sizes.min, sizes.usual, sizes.max].map(usize::from).to_vec(),
            Variants::Boards(Boards { examples, .. }) => examples.iter().map(|size| size.variant().into()).collect(),
            Variants::Named(names) => (0..names.len()).collect(),
        };
        // The usual size may be the maximum.
        variants.dedup();
        variants.into_iter().map(|variant| self.name_of(variant))
    }

    /// Returns candidates for a misspelt name: the text to compare, and the name to suggest. Every size is a
    /// candidate, and the name of the game alone suggests the usual size.
    pub(crate) fn suggestions(&self) -> Vec<(String, String)> {
        let same = |name: String| (name.clone(), name);
        match self.variants {
            Variants::Sizes(Sizes { min, usual, max }) => {
                let sizes = (min..=max).map(|size| same(self.name_of(size.into())));
                sizes.chain([(self.name.to_owned(), self.name_of(usual.into()))]).collect()
            }
            Variants::One | Variants::Boards(_) | Variants::Named(_) => self.examples().map(same).collect(),
        }
    }
}

/// Formats the names of the game: `connect_four`, `hex-3 to hex-19`, `connect_four-COLUMNSxROWS` with the condition,
/// `cartpole-v0, cartpole-v1`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variants {
            Variants::One => f.write_str(self.name),
            Variants::Sizes(Sizes { min, max, .. }) => write!(f, "{name}-{min} to {name}-{max}", name = self.name),
            Variants::Boards(boards) => write!(f, "{}-COLUMNSxROWS ({})", self.name, boards.condition),
            Variants::Named(names) => f.write_str(&names.join(", ")),
        }
    }
}
