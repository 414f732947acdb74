//! Tests of the web console over HTTP, as one program.

mod cluster;
mod control;
mod http;
mod matches;
mod play;
mod replay;
mod settings;
mod visits;

use settings::settings;
