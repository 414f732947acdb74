//! Exceptions: `zerofleet.Error` for failures of the library, `ValueError` for rejected arguments.

#![allow(unreachable_pub, reason = "the macro of the exception declares a public struct")]

use std::fmt::Display;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(
    zerofleet,
    Error,
    PyException,
    "A failure of zerofleet: an unknown game, or a file that is no network."
);

/// Returns the `zerofleet.Error` for a failure: the text of the error and of every cause that the text lacks.
pub(crate) fn failed(error: &(dyn std::error::Error + 'static)) -> PyErr {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&cause| cause.source()).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    Error::new_err(text)
}

/// Returns the `ValueError` for a rejected argument.
pub(crate) fn rejected(reason: impl Display) -> PyErr {
    PyValueError::new_err(reason.to_string())
}
