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
    /// The environment runs outside this program, which knows it only by a description.
    #[error("`{name}` runs outside this program: the section [environment] of a run file describes it")]
    Undescribed {
        /// The given name.
        name: String,
    },
}

impl Entry {
    /// Reads the variant in `name` if it names this game: the size, or the index of the name; 0 for a game of one form.
    pub(crate) fn variant_in(&'static self, name: &str) -> Option<Result<u8, Error>> {
        let sizes = match self.variants {
            Variants::One => return (name == self.name).then_some(Ok(0)),
            Variants::Named(names) => {
                let index = names.iter().position(|&other| other == name)?;
                return Some(Ok(u8::try_from(index).expect("a game has a few names")));
            }
            Variants::Sizes(sizes) => sizes,
        };
        let text = name.strip_prefix(self.name)?.strip_prefix('-')?;
        let size = text.parse().ok().filter(|size| (sizes.min..=sizes.max).contains(size));
        // A board has exactly one name: `hex-011` and `hex-+11` are rejected.
        let size = size.filter(|size| size.to_string() == text);
        Some(size.ok_or_else(|| self.wrong_size(name)))
    }

    pub(crate) fn wrong_size(&'static self, name: &str) -> Error {
        Error::Size { name: name.to_owned(), entry: self }
    }

    /// Returns the name of a variant: of the size, or of the index of the name.
    pub(crate) fn name_of(&self, variant: usize) -> String {
        match self.variants {
            Variants::One => self.name.to_owned(),
            Variants::Sizes(_) => format!("{}-{variant}", self.name),
            Variants::Named(names) => names[variant].to_owned(),
        }
    }

    /// Returns the names of the smallest, the usual and the largest size, or all names of a game without sizes.
    pub fn examples(&self) -> impl Iterator<Item = String> {
        let mut variants: Vec<usize> = match self.variants {
            Variants::One => vec![0],
            Variants::Sizes(sizes) => [sizes.min, sizes.usual, sizes.max].map(usize::from).to_vec(),
            Variants::Named(names) => (0..names.len()).collect(),
        };
        // The usual size may be the largest one.
        variants.dedup();
        variants.into_iter().map(|variant| self.name_of(variant))
    }

    /// Returns the names that are suggested for a misspelt one: the usual size, or all names of a game without sizes.
    pub(crate) fn suggestions(&self) -> Vec<String> {
        match self.variants {
            Variants::Sizes(sizes) => vec![self.name_of(usize::from(sizes.usual))],
            Variants::One | Variants::Named(_) => self.examples().collect(),
        }
    }
}

/// Formats the names of the game: `connect_four`, `hex-3 to hex-19`, `cartpole-v0, cartpole-v1`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variants {
            Variants::One => f.write_str(self.name),
            Variants::Sizes(Sizes { min, max, .. }) => write!(f, "{name}-{min} to {name}-{max}", name = self.name),
            Variants::Named(names) => f.write_str(&names.join(", ")),
        }
    }
}
