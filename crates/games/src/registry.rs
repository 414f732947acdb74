//! Generates the items that depend on the list of games: [`GameKind`](crate::GameKind), [`AnyGame`](crate::AnyGame) and
//! [`with_game!`](crate::with_game).

/// Registers games, each as `module::Rules`, or `module::Rules { size: Size }` for a game with variants. Behind a game,
/// `in Box` keeps its positions in boxes where they are those of any game, which take the memory of the largest.
///
/// The module has a constant `ENTRY`; the rules have a constructor `new`, which takes the variant if there is one; the
/// type of variants has `new(u8) -> Option<Self>` and `get() -> usize`, the size or the index of the name.
/// [`with_game!`](crate::with_game) has an instance of its own for each game of the list `own`, and one for all of the
/// list `any`.
macro_rules! registry {
    // `$d` is a dollar sign, for the macros that this one defines.
    ($d:tt own { $($own:tt)+ } any { $($any:tt)+ }) => {
        kinds! { $d $($own)+ $($any)+ }
        instances! { $d $($own)+ }
    };
}

/// Generates all items but [`with_game!`](crate::with_game).
macro_rules! kinds {
    // `$d` is a dollar sign, for the macro that this one defines.
    ($d:tt $($module:ident :: $Rules:ident $({ $size:ident: $Size:ty })? $(in $Box:ident)?),+ $(,)?) => {
        $(pub use $module::$Rules;)+

        /// The registered games, in the order in which texts list them.
        pub const GAMES: &[&Entry] = &[$(&$module::ENTRY),+];

        /// Selects the game of a run, with its variant. Configurations contain its name: `tic_tac_toe`, `hex-11`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum GameKind {
            $(
                #[doc = concat!("Plays by the rules of [`", stringify!($Rules), "`](type@", stringify!($Rules), ").")]
                $Rules $({
                    /// The variant.
                    $size: $Size,
                })?,
            )+
            /// An environment that runs outside this program. Its name does not describe it, so that it is never
            /// parsed.
            Recorded($crate::Recorded),
        }

        impl GameKind {
            /// Returns the registry entry of the game.
            #[must_use]
            pub const fn entry(&self) -> &'static Entry {
                match self {
                    $(Self::$Rules $({ $size: _ })? => &$module::ENTRY,)+
                    Self::Recorded(_) => &$crate::recorded::ENTRY,
                }
            }
        }

        /// The rules of one registered game, which is known at run time alone.
        ///
        /// Code over this type is compiled once and not once per game, which [`with_game!`](crate::with_game) does. A
        /// call selects the game first, and a position takes the memory of the largest one that is not in a box.
        #[derive(Debug, Clone)]
        pub enum AnyGame {
            $(
                #[doc = concat!("The rules of [`", stringify!($Rules), "`](type@", stringify!($Rules), ").")]
                $Rules($Rules),
            )+
            /// The constants of an environment that runs outside this program.
            Recorded($crate::Recorded),
        }

        /// A position of [`AnyGame`].
        #[derive(Debug, Clone, PartialEq)]
        pub enum AnyPosition {
            $(
                #[doc = concat!("A position of [`", stringify!($Rules), "`](type@", stringify!($Rules), ").")]
                $Rules(position_in!($($Box)? <$Rules as ::game::Game>::Position)),
            )+
            /// A position of an environment that runs outside this program.
            Recorded($crate::recorded::Position),
        }

        impl AnyPosition {
            /// Returns the memory of the box that the position is in, in bytes; 0 if it is in none.
            #[must_use]
            pub fn boxed_bytes(&self) -> usize {
                match self {
                    $(Self::$Rules(position) => boxed_bytes!($($Box)? position),)+
                    Self::Recorded(_) => 0,
                }
            }
        }

        impl GameKind {
            /// Returns the rules of the game.
            #[must_use]
            pub fn rules(&self) -> AnyGame {
                match self {
                    $(Self::$Rules $({ $size })? => AnyGame::$Rules($Rules::new($(*$size)?)),)+
                    Self::Recorded(environment) => AnyGame::Recorded(environment.clone()),
                }
            }
        }

        /// Runs an expression with the concrete rules of an [`AnyGame`] bound to a name. `as_position(E)` wraps the
        /// value of E in [`AnyPosition`].
        macro_rules! with_rules {
            ($d any:expr, |$d game:ident| as_position($d body:expr)) => {
                match $d any {
                    $(AnyGame::$Rules($d game) => AnyPosition::$Rules(($d body).into()),)+
                    AnyGame::Recorded($d game) => AnyPosition::Recorded($d body),
                }
            };
            ($d any:expr, |$d game:ident| $d body:expr) => {
                match $d any {
                    $(AnyGame::$Rules($d game) => $d body,)+
                    AnyGame::Recorded($d game) => $d body,
                }
            };
        }

        /// Runs an expression with the concrete rules of an [`AnyGame`] and a position of them bound to names.
        /// `as_position(E)` wraps the value of E in [`AnyPosition`].
        macro_rules! with_position {
            ($d any:expr, $d position:expr, |$d game:ident, $d at:ident| as_position($d body:expr)) => {
                match ($d any, $d position) {
                    $(
                        (AnyGame::$Rules($d game), AnyPosition::$Rules($d at)) => {
                            AnyPosition::$Rules(($d body).into())
                        }
                    )+
                    (AnyGame::Recorded($d game), AnyPosition::Recorded($d at)) => AnyPosition::Recorded($d body),
                    _ => unreachable!("the position is one of another game"),
                }
            };
            ($d any:expr, $d position:expr, |$d game:ident, $d at:ident| $d body:expr) => {
                match ($d any, $d position) {
                    $((AnyGame::$Rules($d game), AnyPosition::$Rules($d at)) => $d body,)+
                    (AnyGame::Recorded($d game), AnyPosition::Recorded($d at)) => $d body,
                    _ => unreachable!("the position is one of another game"),
                }
            };
        }

        impl std::fmt::Display for GameKind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let variants: &[usize] = match self {
                    $(Self::$Rules $({ $size })? => &[$($size.get())?],)+
                    Self::Recorded(environment) => return f.write_str(&game::Game::spec(environment).name),
                };
                f.write_str(&self.entry().name_of(variants.first().copied().unwrap_or_default()))
            }
        }

        impl std::str::FromStr for GameKind {
            type Err = Error;

            fn from_str(name: &str) -> Result<Self, Error> {
                $(
                    if let Some(_variant) = $module::ENTRY.variant_in(name).transpose()? {
                        return Ok(Self::$Rules $({
                            $size: <$Size>::new(_variant).ok_or_else(|| $module::ENTRY.wrong_size(name))?,
                        })?);
                    }
                )+
                if is_outside(name) {
                    return Err(Error::Undescribed { name: name.to_owned() });
                }
                Err(Error::UnknownGame { name: name.to_owned(), nearest: nearest(name) })
            }
        }
    };
}

/// Generates [`with_game!`](crate::with_game) from the games of which it has instances of their own.
macro_rules! instances {
    ($d:tt $($module:ident :: $Rules:ident $({ $size:ident: $Size:ty })?),+ $(,)?) => {
        /// Runs an expression with the rules of a [`GameKind`] bound to a name.
        ///
        /// The expression may call functions generic over [`game::Game`]; its type must not depend on the game. It is
        /// compiled once for each game whose rules a search calls so often that this pays, with the concrete rules, and
        /// once with [`AnyGame`] for all others: decision 0077.
        ///
        /// ```
        /// use game::Game;
        ///
        /// fn actions<G: Game>(game: &G) -> usize {
        ///     game.spec().actions
        /// }
        ///
        /// let kind: games::GameKind = "connect_four".parse()?;
        /// assert_eq!(games::with_game!(kind, |game| actions(&game)), 7);
        /// # Ok::<(), games::Error>(())
        /// ```
        #[macro_export]
        macro_rules! with_game {
            ($d kind:expr, |$d game:ident| $d body:expr) => {
                match $d kind {
                    $(
                        $d crate::GameKind::$Rules $({ $size })? => {
                            let $d game = $d crate::$Rules::new($($size)?);
                            $d body
                        }
                    )+
                    ref kind => {
                        let $d game = kind.rules();
                        $d body
                    }
                }
            };
        }
    };
}

/// Returns a type of positions, in a box if there is one before it.
macro_rules! position_in {
    (Box $Position:ty) => { Box<$Position> };
    ($Position:ty) => { $Position };
}

/// Returns the size of what a reference to a box leads to, or 0 for a position that is in none.
macro_rules! boxed_bytes {
    (Box $position:ident) => {
        size_of_val(&**$position)
    };
    ($position:ident) => {{
        let _ = $position;
        0
    }};
}
