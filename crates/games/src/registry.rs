//! Generates the items that depend on the list of games: [`GameKind`](crate::GameKind), [`AnyGame`](crate::AnyGame)
//! and [`with_game!`](crate::with_game).

/// Registers games, each as `module::Rules`, or `module::Rules { size: Size }` for a game with variants. The suffix
/// `in Box` boxes a game's positions in the common position type, which has the size of the largest variant.
///
/// The module has a constant `ENTRY`. The rules have a constructor `new`, which takes the variant if there is one.
/// The variant type has `new(u8) -> Option<Self>` and `get() -> usize`, the size or the index of the name.
/// [`with_game!`](crate::with_game) has a separate instance for each game in the list `own`, and one for all games in
/// the list `any`.
macro_rules! registry {
    // `$d` is a dollar sign, for the macros that this macro defines.
    ($d:tt own { $($own:tt)+ } any { $($any:tt)+ }) => {
        kinds! { $d $($own)+ $($any)+ }
        instances! { $d $($own)+ }
    };
}

/// Generates all items except [`with_game!`](crate::with_game).
macro_rules! kinds {
    // `$d` is a dollar sign, for the macro that this macro defines.
    ($d:tt $($module:ident :: $Rules:ident $({ $size:ident: $Size:ty })? $(in $Box:ident)?),+ $(,)?) => {
        $(pub use $module::$Rules;)+

        /// All registered games, in the order of help texts and errors.
        pub const GAMES: &[&Entry] = &[$(&$module::ENTRY),+];

        /// Selects the game of a run, with the variant. Configurations contain the name: `tic_tac_toe`, `hex-11`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum GameKind {
            $(
                #[doc = concat!("Plays by the rules of [`", stringify!($Rules), "`](type@", stringify!($Rules), ").")]
                $Rules $({
                    /// Variant of the game.
                    $size: $Size,
                })?,
            )+
            /// An environment that runs outside this program. The name does not describe it, so it is never parsed.
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

        /// The rules of one registered game, selected at run time.
        ///
        /// Code over this type is compiled once and not once per game, unlike with [`with_game!`](crate::with_game).
        /// Every call selects the game first, and a position takes the memory of the largest unboxed position.
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
            /// Returns the memory of the position's box, in bytes; 0 without a box.
            #[must_use]
            pub fn boxed_bytes(&self) -> usize {
                match self {
                    $(Self::$Rules(position) => boxed_bytes!($($Box)? position),)+
                    Self::Recorded(_) => 0,
                }
            }
        }

        impl GameKind {
            /// Returns the rules of the game as one type for all games.
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

        /// Runs an expression with the concrete rules of an [`AnyGame`] and a matching position bound to names.
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
                    _ => unreachable!("the position belongs to another game"),
                }
            };
            ($d any:expr, $d position:expr, |$d game:ident, $d at:ident| $d body:expr) => {
                match ($d any, $d position) {
                    $((AnyGame::$Rules($d game), AnyPosition::$Rules($d at)) => $d body,)+
                    (AnyGame::Recorded($d game), AnyPosition::Recorded($d at)) => $d body,
                    _ => unreachable!("the position belongs to another game"),
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

/// Generates [`with_game!`](crate::with_game) with separate instances for these games.
macro_rules! instances {
    ($d:tt $($module:ident :: $Rules:ident $({ $size:ident: $Size:ty })?),+ $(,)?) => {
        /// Runs an expression with the rules of a [`GameKind`] bound to a name.
        ///
        /// The expression may call functions generic over [`game::Game`]; its type must not depend on the game. It is
        /// compiled once with the concrete rules for each game that profits, because a search calls the rules very
        /// often, and once with [`AnyGame`] for all other games: decision 0077.
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

/// Returns a position type, boxed if `Box` precedes it.
macro_rules! position_in {
    (Box $Position:ty) => { Box<$Position> };
    ($Position:ty) => { $Position };
}

/// Returns the size of the boxed value; 0 for an unboxed position.
macro_rules! boxed_bytes {
    (Box $position:ident) => {
        size_of_val(&**$position)
    };
    ($position:ident) => {{
        let _ = $position;
        0
    }};
}
