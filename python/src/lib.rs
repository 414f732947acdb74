//! The extension module `zerofleet._zerofleet`: games, search and the CPU kernel for Python.

use pyo3::prelude::*;

/// Games, search and the CPU kernel. The package `zerofleet` documents the classes.
#[pymodule]
mod _zerofleet {
    use super::*;

    /// Returns the names of all games.
    #[pyfunction]
    fn game_names() -> Vec<String> {
        games::GAMES.iter().flat_map(|entry| entry.examples()).collect()
    }
}
