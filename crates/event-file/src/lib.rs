//! Writes TensorBoard's event files.
//!
//! An [`EventFile`] holds events, each with a time, a step and [`Summary`] values: scalars, histograms, and the
//! settings of a run in the format of the hparams plugin. An event is a protobuf message in a checksummed record. The
//! crate knows no run and no clock; an [`AppendLog`] is a file with records that are written completely or not at
//! all. Start with [`EventFile`].

mod append_log;
mod file;
mod histogram;
mod messages;
mod record;
mod settings;
mod summary;

pub use append_log::AppendLog;
pub use file::EventFile;
pub use summary::Summary;
