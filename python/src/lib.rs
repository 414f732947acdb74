//! The extension module `zerofleet._zerofleet`: games, search and the CPU kernel for Python.
//!
//! `rules`, `position` and `vector` have the classes for games, `network` and `search` the classes for networks.
//! `errors` has the exceptions, `arrays` the bytes of arrays, from which the package `zerofleet` makes NumPy arrays.

mod arrays;
mod errors;
mod network;
mod position;
mod rules;
mod search;
mod vector;

use pyo3::prelude::*;

/// Games, search and the CPU kernel. The package `zerofleet` documents the classes.
#[pymodule]
mod _zerofleet {
    #[pymodule_export]
    use super::{
        errors::Error,
        network::Network,
        position::{Position, observations},
        rules::{Game, game_names},
        search::{Analysis, Search},
        vector::VectorGames,
    };
}
