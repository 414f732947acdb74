//! The replay process.
