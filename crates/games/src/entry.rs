use std::fmt;

/// Describes a registered game, apart from its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name in configurations, logs and trajectories, if the game has no variants.
    pub name: &'static str,
    /// The variants of the game, each of which has its own name.
    pub variants: Variants,
    /// The preset of a run: TOML with lower precedence than the run file of every process. Missing keys have the
    /// defaults of each process.
    pub preset: &'static str,
    /// The positions with known scores on which the arena measures accuracy; only for a game without variants.
    pub solved: Option<SolvedPositions>,
    /// Determines whether the arena plays every line of the game.
    pub exhaustive: Exhaustive,
}

/// The variants of a game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variants {
    /// The game has one form, which has the name of the game.
    One,
    /// A variant for each size; it is written `NAME-SIZE`: `hex-11`.
    Sizes(Sizes),
    /// A variant for each board of columns and rows but the usual one, which another entry has; it is written
    /// `NAME-COLUMNSxROWS`: `connect_four-6x5`.
    Boards(Boards),
    /// A few variants, each with its whole name; the registry identifies one by its index: `cartpole-v0`.
    Named(&'static [&'static str]),
}

/// The sizes of a game: the number of cells along a side of its board, or another number that its module documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The smallest size.
    pub min: u8,
    /// The size that examples and suggestions use.
    pub usual: u8,
    /// The largest size.
    pub max: u8,
}

/// The boards of a game that has columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boards {
    /// The board that has the name of the game alone.
    pub usual: BoardSize,
    /// Boards of this entry for tests and suggestions, the smallest first.
    pub examples: &'static [BoardSize],
    /// The condition that all boards fulfil, in words.
    pub condition: &'static str,
}

/// The size of a board with columns and rows, at most 15 of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoardSize {
    /// The number of columns.
    pub columns: u8,
    /// The number of rows.
    pub rows: u8,
}

impl BoardSize {
    /// Parses `6x5`. A size has exactly one form: `06x5` and `+6x5` are rejected.
    fn parse(text: &str) -> Option<Self> {
        let (columns, rows) = text.split_once('x')?;
        let size = Self { columns: columns.parse().ok()?, rows: rows.parse().ok()? };
        (size.columns < 16 && size.rows < 16 && size.to_string() == text).then_some(size)
    }

    /// Returns the number by which the registry identifies the board.
    pub(crate) const fn variant(self) -> u8 {
        self.columns << 4 | self.rows
    }

    /// Returns the board that the registry identifies by this number.
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
    #[error("`{name}` is not a game{}: the games are {}", suggested(nearest.as_deref()), crate::names())]
    UnknownGame {
        /// The given name.
        name: String,
        /// The most similar name, if one is similar.
        nearest: Option<String>,
    },
    /// The game exists, but not at this size.
    #[error("`{name}` is not a size of {}: the sizes are {entry}", entry.name)]
    Size {
        /// The given name.
        name: String,
        /// The entry of the game.
        entry: &'static Entry,
    },
    /// The board is the usual one, which has the name of the game alone.
    #[error("`{name}` is called `{}`", entry.name)]
    UsualBoard {
        /// The given name.
        name: String,
        /// The entry of the game.
        entry: &'static Entry,
    },
    /// The environment runs outside this program, which knows it only by a description.
    #[error("`{name}` runs outside this program: the section [environment] of a run file describes it")]
    Undescribed {
        /// The given name.
        name: String,
    },
}

fn suggested(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!(" (did you mean {nearest}?)")).unwrap_or_default()
}

impl Entry {
    /// Reads the variant in `name` if it names this game: the size, the number of the board, or the index of the name;
    /// 0 for a game of one form.
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
        // A board has exactly one name: `hex-011` and `hex-+11` are rejected.
        let size = size.filter(|size| size.to_string() == text);
        Some(size.ok_or_else(|| self.wrong_size(name)))
    }

    /// Reads the size of a board in `text`, the end of `name`.
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

    /// Returns the name of a variant: of the size, of the number of the board, or of the index of the name.
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

    /// Returns the names of the smallest, the usual and the largest size, of some boards, or all names of a game
    /// without sizes.
    pub fn examples(&self) -> impl Iterator<Item = String> {
        let mut variants: Vec<usize> = match self.variants {
            Variants::One => vec![0],
            Variants::Sizes(sizes) => [sizes.min, sizes.usual, sizes.max].map(usize::from).to_vec(),
            Variants::Boards(Boards { examples, .. }) => examples.iter().map(|size| size.variant().into()).collect(),
            Variants::Named(names) => (0..names.len()).collect(),
        };
        // The usual size may be the largest one.
        variants.dedup();
        variants.into_iter().map(|variant| self.name_of(variant))
    }

    /// Returns what may be meant by a misspelt name, as the text that the name resembles and the name to suggest: every
    /// size, and the usual one for the name of the game alone.
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
